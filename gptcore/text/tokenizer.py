"""Byte-level BPE: trained with `tokenizers`, run with `tiktoken`, saved as tiktoken ranks.

    >>> tokenizer = Tokenizer({bytes([b]): b for b in range(256)})      # no merges: plain bytes
    >>> tokenizer.decode(tokenizer.encode("héllo <|end|>"))
    'héllo <|end|>'
    >>> tokenizer.special["<|endoftext|>"], tokenizer.vocab_size
    (256, 262)

`encode` never returns the id of a special token, whatever the text contains. Only
gptcore.text.chat_template puts these ids into prompts.

A rank is a token's number in the list of merges. It is also the token's id, unless only some
ranks are `kept` (see training.data.encodings.compact); then ids number the kept ranks. A tokenizer
made elsewhere may have `special` tokens of its own with any ids, and `added` ones, which are
ordinary text that is always one token.
"""

import base64
import codecs
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken

from gptcore.checks import UserError
from gptcore.text.chat_format import ChatFormat
from gptcore.text.ids import bytes_by_id, checked_kept, ids_of_token
from gptcore.text.letters import from_letters
from gptcore.text.parts import Form, Parts, check_runs
from gptcore.text.pieces import pieces_without
from gptcore.typed_json import read_as

FILE_NAME = "tokenizer.tiktoken"
FACTS_NAME = "tokenizer.facts.json"  # what the rank file cannot express; written only if needed
OPTIONAL = {"added", "normal_form"}  # facts that few tokenizers have

# Their ids follow those of the ordinary tokens, in this order.
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|pad|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
)

# The cl100k pattern of tiktoken with the English contractions spelled out, so that engines cannot
# differ in case folding. It uses possessive quantifiers and ends in a single `\s`, because the
# usual ending `\s+(?!\S)|\s+` overflows the engine's stack on a million spaces.
PATTERN = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])"
    r"|[^\r\n\p{L}\p{N}]?+\p{L}++"
    r"|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)

# An equivalent pattern for engines without possessive quantifiers: JavaScript has none, and
# Oniguruma reads `{1,3}+` otherwise and lets `$` match before every newline. Each alternative is
# spelled as in Llama's tokenizers, because onnxruntime-genai recognises them by their text. It does
# not accept a character class in place of `\s`.
PORTABLE_PATTERN = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+(?![\s\S])|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Tokenizer:
    """Encodes text to token ids and decodes ids to text.

    `ranks` maps the bytes of each token to its rank, 0 to n-1. `pattern` splits a text into
    pieces; tokens merge only within a piece. `kept` lists the ranks, ascending, that have ids;
    any other token is written as its single bytes, so all single bytes must be kept. `special`
    maps names to ids, and ordinary tokens take the free ids in the order of their ranks; without
    it SPECIAL_TOKENS follow the ordinary ones. `chat` is the format of conversations. `added` maps
    texts that are always one token to ids; what is between them is normalised to `normal_form`
    ("NFC", or "" for as it is) before it is encoded, and comes back so. Raises UserError if ranks,
    `kept`, `special` or `added` are inconsistent.

    A tokenizer made elsewhere may lack single bytes: they get no ids, and encoding loses them.
    """

    def __init__(
        self,
        ranks: dict[bytes, int],
        pattern: str = PATTERN,
        kept: Sequence[int] | None = None,
        special: dict[str, int] | None = None,
        chat: ChatFormat = ChatFormat(),
        added: dict[str, int] | None = None,
        normal_form: Form = "",
    ):
        if sorted(ranks.values()) != list(range(len(ranks))):
            raise UserError("the tokenizer's ranks are not the numbers 0 to n-1, once each")
        by_rank = sorted(ranks, key=ranks.__getitem__)
        self.ranks = ranks
        self.pattern = pattern
        self.kept = None if kept is None else checked_kept(kept, len(ranks))
        self.tokens = by_rank if self.kept is None else [by_rank[rank] for rank in self.kept]
        missing = sorted(set(range(256)) - {t[0] for t in self.tokens if len(t) == 1})
        if missing and (special is None or len(missing) == 256):
            what = "ranks" if kept is None else "kept ranks"
            raise UserError(f"the tokenizer's {what} lack the single bytes {missing[:8]}")
        if special is not None and not special:
            raise UserError("the tokenizer has no special token, so nothing could end a text")
        n_tokens = len(self.tokens)
        self._ours = {name: n_tokens + i for i, name in enumerate(SPECIAL_TOKENS)}
        self.special = self._ours if special is None else special
        self.added = added or {}
        self.vocab_size = n_tokens + len(self.special) + len(self.added)
        self.chat, self.normal_form = chat, normal_form
        self._parts = Parts(self.added, normal_form)
        self._bytes = bytes_by_id(self.tokens, [*self.special.values(), *self.added.values()])
        ids = {token: i for i, token in enumerate(self._bytes) if token}
        is_plain = kept is None and self._bytes[:n_tokens] == by_rank
        self._ids_of_rank = None if is_plain else [ids_of_token(ids, t) for t in by_rank]
        for name, i in self.added.items():
            self._bytes[i] = name.encode()
        self.max_token_bytes = max(map(len, self._bytes))
        # tiktoken needs all bytes: those that are missing get ranks that merge with nothing.
        self._missing = {bytes([byte]): len(ranks) + i for i, byte in enumerate(missing)}
        self._encoding = tiktoken.Encoding(
            name="gptcore",
            pat_str=pattern,
            mergeable_ranks=ranks | self._missing,
            special_tokens={},  # special tokens are never recognised in a text
        )

    def __reduce__(self) -> tuple[Any, ...]:
        own = self.special, self.chat, self.added, self.normal_form
        return Tokenizer, (self.ranks, self.pattern, self.kept, *own)

    @cached_property
    def special_pattern(self) -> re.Pattern[str]:
        """A pattern whose only group is a special token; the longest one matches."""
        names = sorted(self.special, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, names))})")

    @cached_property
    def special_names(self) -> dict[int, str]:
        """The names of the special tokens by their ids."""
        return {token_id: name for name, token_id in self.special.items()}

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; `<|end|>` in it is encoded as text. Raises UserError."""
        if not text:  # a conversation has many empty texts
            return []
        check_runs(text)
        parts = self._parts.split(text)  # text, added token, text, ...
        ids = self._plain_ids(parts[0])
        for name, part in zip(parts[1::2], parts[2::2]):
            ids += [self.added[name], *self._plain_ids(part)]
        return ids

    def _plain_ids(self, text: str) -> list[int]:
        ranks = self._encoding.encode_ordinary(text)
        if self._missing and max(ranks, default=0) >= len(self.ranks):
            left = pieces_without(b"".join(self._missing), text, self.pattern)
            ranks = list(chain.from_iterable(map(self._encoding._encode_single_piece, left)))
        if self._ids_of_rank is None:
            return ranks
        return list(chain.from_iterable(map(self._ids_of_rank.__getitem__, ranks)))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids without the special ones; invalid UTF-8 becomes U+FFFD."""
        return b"".join(self.token_bytes(i) for i in ids).decode("utf-8", errors="replace")

    def show(self, ids: Iterable[int]) -> str:
        """Return the text of ids, with the names of special tokens."""
        names = self.special_names
        parts = (names[i].encode() if i in names else self.token_bytes(i) for i in ids)
        return b"".join(parts).decode("utf-8", errors="replace")

    def name(self, token_id: int) -> str:
        """Return a readable name of one id: its text, or of a part of a character its bytes."""
        if token_id in self.special_names:
            return self.special_names[token_id]
        token = self.token_bytes(token_id)
        try:
            return token.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(f"\\x{byte:02x}" for byte in token)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one id; a special id has none."""
        return self._bytes[token_id]

    def is_id(self, value: object) -> bool:
        """Return whether a value, which a stranger may have sent, is the id of a token."""
        return type(value) is int and 0 <= value < self.vocab_size

    @cached_property
    def byte_lengths(self) -> np.ndarray:
        """Return how many bytes each id stands for, (vocab_size,); 0 for special ids."""
        return np.array([len(token) for token in self._bytes], dtype=np.int64)

    def stream(self) -> "StreamDecoder":
        return StreamDecoder(self)

    def to_bytes(self) -> bytes:
        """Return the tiktoken rank file: one line `base64 rank` per token."""
        ordered = sorted(self.ranks.items(), key=lambda item: item[1])
        return b"".join(base64.b64encode(t) + b" " + str(r).encode() + b"\n" for t, r in ordered)

    @property
    def is_ours(self) -> bool:
        """Whether special tokens and format are those that training needs.

        The format may have a usual system message.
        """
        is_plain = not self.added and not self.normal_form
        usual = self.chat.usual_system
        form = ChatFormat().with_usual_system(usual) if usual else ChatFormat()
        return is_plain and self.special == self._ours and self.chat == form

    @property
    def has_our_ids(self) -> bool:
        """Whether the rank file alone tells all ids."""
        return self.is_ours and self.pattern == PATTERN and self.kept is None

    @property
    def facts(self) -> dict[str, Any]:
        """What the rank file cannot express; empty for a tokenizer with our defaults."""
        is_default = self.is_ours and not self.chat.usual_system
        if is_default and self.has_our_ids:
            return {}
        facts: dict[str, Any] = {"pattern": self.pattern, "kept": self.kept}
        if is_default:
            return facts
        optional = {"added": self.added, "normal_form": self.normal_form}
        facts |= {"special": self.special, "chat": asdict(self.chat)}
        return facts | {key: value for key, value in optional.items() if value}

    @cached_property
    def sha256(self) -> str:
        facts = json.dumps(self.facts).encode() if self.facts else b""
        return hashlib.sha256(self.to_bytes() + facts).hexdigest()

    def save(self, folder: str | Path) -> None:
        """Write FILE_NAME, and FACTS_NAME if it is needed, into a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE_NAME).write_bytes(self.to_bytes())
        (folder / FACTS_NAME).unlink(missing_ok=True)  # another tokenizer may have left one
        if self.facts:
            (folder / FACTS_NAME).write_text(json.dumps(self.facts), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Read what `save` wrote, in a run's `tokenizer/` or a model folder; raises UserError."""
        path = Path(folder) / FILE_NAME
        try:
            lines = [line.split() for line in path.read_bytes().splitlines()]
            ranks = {base64.b64decode(t, validate=True): int(rank) for t, rank in lines}
            return cls(ranks, **read_facts(Path(folder) / FACTS_NAME))
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"no tokenizer at {path}: name a folder that holds {FILE_NAME}"
            ) from None
        except ValueError as error:
            raise UserError(
                f"the tokenizer in {folder} is damaged, {FILE_NAME} or {FACTS_NAME}: {error}"
            ) from None

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "Tokenizer":
        """Learn the merges from texts (arXiv 1508.07909, section 3.2, on bytes).

        It has at most vocab_size tokens, special ones included; a short text gives fewer.
        Raises UserError if vocab_size leaves no room for the 256 bytes.
        """
        from tokenizers import Regex, models, pre_tokenizers, trainers
        from tokenizers import Tokenizer as Trainable

        n_ranks = vocab_size - len(SPECIAL_TOKENS)
        if not (n_ranks >= 256):
            raise UserError(
                f"vocab_size={vocab_size} is too small: 256 bytes and {len(SPECIAL_TOKENS)} "
                f"special tokens need at least {256 + len(SPECIAL_TOKENS)}"
            )
        trainable = Trainable(models.BPE())
        trainable.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(PORTABLE_PATTERN), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        trainer = trainers.BpeTrainer(
            vocab_size=n_ranks,
            min_frequency=2,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        trainable.train_from_iterator(texts, trainer)
        vocab = trainable.get_vocab()
        return cls({from_letters(token): i for token, i in vocab.items()})


def read_facts(path: Path) -> dict[str, Any]:
    """Return what Tokenizer.facts wrote, or {} if the file is missing.

    Raises ValueError if it is damaged.
    """
    if not path.exists():
        return {}
    try:
        facts = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    needed, foreign = {"pattern", "kept"}, {"pattern", "kept", "special", "chat"}
    is_sound = isinstance(facts, dict) and set(facts) - OPTIONAL in (needed, foreign)
    if not is_sound or not isinstance(facts["pattern"], str):
        raise ValueError("a pattern and the kept ranks are needed, and nothing else")
    for key in ("special", "added"):
        names = facts.get(key, {})
        if not isinstance(names, dict) or not all(type(i) is int for i in names.values()):
            raise ValueError(f"the {key} tokens are not names with ids")
    if "special" in facts:
        facts["chat"] = read_as(ChatFormat, facts["chat"], "chat")
    return facts


class StreamDecoder:
    """Decodes ids one at a time; a character split over several tokens is returned once, whole.

    The concatenation of all pieces and `finish()` equals `Tokenizer.decode` of all ids.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._token_bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        return self._decoder.decode(self._token_bytes(token_id))

    def finish(self) -> str:
        """Return the rest of an incomplete character: U+FFFD, or nothing if there is none."""
        return self._decoder.decode(b"", final=True)
