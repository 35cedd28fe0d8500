"""Reads a Hugging Face tokenizer.json as our Tokenizer, which must give the same ids.

>>> tokenizer = read_tokenizer(Path("SmolLM2-135M-Instruct"), vocab_size=49152)  # doctest: +SKIP
"""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from export.formats.hugging_face import recover_merges
from export.formats.pre_tokenizers import NFC, pattern_of
from export.pretrained.chat_template import read_format
from gptcore.checks import UserError, brief
from gptcore.system.files import read_object
from gptcore.text.chat_format import ChatFormat
from gptcore.text.chat_template import ROLES
from gptcore.text.letters import LETTERS, from_letters
from gptcore.text.parts import Form
from gptcore.text.tokenizer import Tokenizer
from training.dialogues.generator import dialogues

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Fast

TRICKY = (
    "a  b   12 34  5é\n\n  x\t\r\n y  ", "I'm we'LL don't ''s '12", "中文字符，３ ４５",
    "👩‍👩‍👧 e\u0301 \u00a0\u3000!",
    "  ", "\n", "1 2 3  ", "x\u0085y\ufeffz\x1c.", "(a)[b]{c}<|d|>__e__ f_1",
)  # fmt: skip

ODD = ("continuing_subword_prefix", "end_of_word_suffix", "dropout")  # of other kinds of BPE
LONGEST_TOKEN = 2_000  # bytes; how a longer one came about takes long to find
MOST_UNUSED = 1 << 20  # ids without a token; each is given a name


def read_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    """Read a tokenizer; raises UserError if it is not byte-level BPE or gives other ids."""
    path = folder / "tokenizer.json"
    try:
        return parse_tokenizer(read_settings(path), path, vocab_size)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is not in Hugging Face's format: {type(error).__name__} {error}"
        ) from None


def parse_tokenizer(data: dict[str, Any], path: Path, vocab_size: int) -> Tokenizer:
    check_kind(data, path)
    listed = [t for t in data["added_tokens"] if t["content"]]  # an empty one is in no text
    names = {t["content"]: t["id"] for t in listed}
    vocab = data["model"]["vocab"]
    ends = read_ends(path.parent, vocab | names)
    if wrong := [i for i in ends if type(i) is not int or not 0 <= i < vocab_size]:
        raise UserError(
            f"{path.parent}: eos_token_id={brief(wrong[0])} is not the id of a token: give "
            f"one from 0 to {vocab_size - 1}, or leave it out"
        )
    # a token that a fine-tuning added may end replies without being called special
    special = {t["content"]: t["id"] for t in listed if t["special"] or t["id"] in ends}
    added = {name: i for name, i in names.items() if name not in special}
    if not special:
        raise UserError(
            f"{path} is not supported: it has no special token, so nothing could end a text"
        )
    if ordinary := [name for name, i in vocab.items() if i in ends and name not in names]:
        raise UserError(
            f"{path.parent} is not supported: {brief(ordinary[0])} ends replies (eos_token_id or "
            f"eos_token), but added_tokens of tokenizer.json do not list it: correct one of them"
        )
    ranks = read_ranks(vocab, names, path)
    taken = {*names.values(), *(i for token, i in vocab.items() if token not in names)}
    if max(taken) >= vocab_size:
        raise UserError(
            f"{path} has the id {max(taken)}, but the model has only {vocab_size} tokens "
            f"(vocab_size): they do not belong together"
        )
    if vocab_size - len(taken) > MOST_UNUSED:
        raise UserError(
            f"{path.parent / 'config.json'} has vocab_size={vocab_size}, but tokenizer.json has "
            f"only {len(taken)} tokens: they do not belong together"
        )
    special |= {f"<|unused_{i}|>": i for i in range(vocab_size) if i not in taken}
    check_merges(ranks, data["model"], path)
    pattern, chat = pattern_of(data["pre_tokenizer"]), read_chat(path.parent, special, ends)
    check_loose(data, added, chat, path)
    form: Form = "NFC" if data.get("normalizer") else ""
    tokenizer = Tokenizer(ranks, pattern, None, special, chat, added, form)
    check_ids(tokenizer, path)
    return tokenizer


def check_kind(data: dict[str, Any], path: Path) -> None:
    model = data["model"]
    for is_so, what in (
        (model.get("type") != "BPE", f"its model is {model.get('type')}"),
        (model.get("byte_fallback"), "it falls back to bytes (SentencePiece)"),
        *((model.get(key), f"it has a {key}") for key in ODD),
        (
            any(len(token) > LONGEST_TOKEN for token in model.get("vocab") or ()),
            f"a token has more than {LONGEST_TOKEN:,} bytes",
        ),
        (data.get("normalizer") not in (None, NFC), "it normalises texts, and not to NFC"),
        (
            model.get("unk_token") and not set(LETTERS.values()) <= set(model["vocab"]),
            "it has an unknown token, and lacks single bytes",
        ),
    ):
        if is_so:
            raise UserError(f"{path} is not a supported byte-level BPE tokenizer: {what}")


def check_loose(data: dict[str, Any], added: dict[str, int], chat: ChatFormat, path: Path) -> None:
    """Raise UserError if a token of texts or of the chat format touches what stands around it."""
    written = str(chat)
    for token in data["added_tokens"]:
        name = token["content"]
        loose = [key for key in ("lstrip", "rstrip", "single_word") if token.get(key)]
        if name in added and data.get("normalizer") and token.get("normalized"):
            loose.append("normalized")
        if loose and (name in added or name in written):
            raise UserError(
                f"{path} is not supported: the added token {brief(name)} has {loose[0]}"
            )


def read_ends(folder: Path, ids: dict[str, int]) -> list[int]:
    """Return the ids that end a reply in other programs, the one that they name first."""
    named = generation_settings(folder).get("eos_token_id")
    last = ids.get(chat_template(folder)[1]["eos_token"])
    return [i for i in (*(named if isinstance(named, list) else [named]), last) if i is not None]


def generation_settings(folder: Path) -> dict[str, Any]:
    """Return what config.json says, and generation_config.json, which goes before."""
    paths = (folder / "config.json", folder / "generation_config.json")
    found: dict[str, Any] = {}
    for path in paths:
        found |= read_settings(path) if path.exists() else {}
    return found


def read_ranks(vocab: dict[str, int], names: dict[str, int], path: Path) -> dict[bytes, int]:
    """Return the bytes of the ordinary tokens, numbered in the order of their ids."""
    ordinary = sorted((i, token) for token, i in vocab.items() if token not in names)
    try:
        return {from_letters(token): n for n, (_, token) in enumerate(ordinary)}
    except KeyError as error:
        raise UserError(
            f"{path} is not a byte-level BPE tokenizer: a token holds {error}, which does not "
            f"stand for a byte"
        ) from None


def check_merges(ranks: dict[bytes, int], model: dict[str, Any], path: Path) -> None:
    """Raise UserError unless merges are in the order of ids, as tiktoken needs them."""
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    if wrong := next((pair for pair in pairs if len(pair) != 2), None):
        raise UserError(f"{path} is damaged: the merge {brief(wrong)} is not of two tokens")
    merges = [(from_letters(a), from_letters(b)) for a, b in pairs]
    expected = recover_merges(ranks)
    same = set(expected) <= set(merges) if model.get("ignore_merges") else expected == merges
    if not same:
        raise UserError(
            f"{path} is not supported: its merges are not in the order of its ids, so tiktoken "
            f"would not give the same ids"
        )


def read_chat(folder: Path, special: dict[str, int], ends: list[int]) -> ChatFormat:
    """Return the format of the model's own chat template, or without one what it can learn."""
    name_of = {i: name for name, i in special.items()}
    opening = read_opening(folder / "tokenizer.json", name_of)
    template, names = chat_template(folder)
    if template is not None:
        return read_format(template, names, opening)
    end = next((name_of[i] for i in ends if i in name_of), None)
    if end is None:
        raise UserError(
            f"{folder} names no special token that ends a text: write eos_token into "
            f"tokenizer_config.json"
        )
    return learnable_format(opening, end)


def read_opening(path: Path, name_of: dict[int, str]) -> str:
    """Return the special tokens that the tokenizer puts before a text; it may put none after it."""
    fast, text = unpadded(path), "a"
    whole, alone = fast.encode(text).ids, fast.encode(text, add_special_tokens=False).ids
    first = whole[: len(whole) - len(alone)]
    if first + alone != whole or not set(first) <= set(name_of):
        raise UserError(
            f"{path} is not supported: its post_processor makes {whole} of {text!r}, not special "
            f"tokens and then {alone}"
        )
    return "".join(name_of[i] for i in first)


def learnable_format(opening: str, end: str) -> ChatFormat:
    """Return a format that a base model can learn conversations in: a token of its own ends each
    message, and so a reply, here and in other runtimes.

    >>> learnable_format("<s>", "</s>").prompt
    'assistant\\n'
    """
    system, user, assistant = ((f"{role}\n", f"{end}\n") for role in ROLES)
    return ChatFormat(opening, opening, opening, system, user, assistant, prompt=assistant[0])


def chat_template(folder: Path) -> tuple[str | None, dict[str, str]]:
    """Return the chat template, if there is one, and the special tokens that it may name."""
    path = folder / "tokenizer_config.json"
    settings: dict[str, Any] = {}
    # Older folders name the special tokens in the first of these alone.
    for file in (folder / "special_tokens_map.json", path):
        settings |= read_settings(file) if file.exists() else {}
    names = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "")
    for key, token in settings.items():
        name = token.get("content") if isinstance(token, dict) else token
        if key.endswith("_token") and isinstance(name, str):
            names[key] = name
    file = folder / "chat_template.jinja"
    template = read_template(file) if file.exists() else settings.get("chat_template")
    if isinstance(template, list):  # several, each {"name": ..., "template": ...}
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get("default", "")
        if not template:
            raise UserError(f"{path} has several chat templates and no default: leave one")
    if template is not None and not isinstance(template, str):
        raise UserError(f"{path}: chat_template={brief(template)} is not a string")
    return template or None, names


def read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not in UTF-8: save it in that encoding") from None


def check_ids(tokenizer: Tokenizer, path: Path) -> None:
    """Raise UserError unless both tokenizers give the same ids for difficult sample texts."""
    fast = unpadded(path)
    talk = (m["content"] for messages in islice(dialogues(1), 200) for m in messages)
    for text in (*TRICKY, *(f"a {name}  {name}\n" for name in tokenizer.added), *talk):
        ids, expected = tokenizer.encode(text), fast.encode(text, add_special_tokens=False).ids
        if ids != expected:
            raise UserError(
                f"{path} is not supported: for {text[:40]!r} tiktoken gives {ids[:8]} and "
                f"it {expected[:8]}"
            )


def unpadded(path: Path) -> "Fast":
    """Return the library's own tokenizer, without the lengths that some files ask for."""
    from tokenizers import Tokenizer as Fast

    try:
        fast = Fast.from_file(str(path))
    except Exception as error:  # the library has no class of its own for it
        raise UserError(f"{path} is not supported: {error}") from None
    fast.no_padding()
    fast.no_truncation()
    return fast


def read_settings(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path} is missing: --from-hf needs a whole model folder") from None
