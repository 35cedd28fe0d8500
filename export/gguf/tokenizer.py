"""The tokenizer of a GGUF file as Hugging Face's files: tokenizer.json, tokenizer_config.json.

>>> tokenizer_json(read_gguf(Path("model.gguf")))["model"]["type"]      # doctest: +SKIP
'BPE'
"""

from typing import Any, TypeVar

from gguf import TokenType

from export.formats.pre_tokenizers import GPT2_LEVEL, NFC, PRE_TOKENIZERS
from export.gguf.file import GGUF
from gptcore.checks import UserError, brief

T = TypeVar("T")
ADDED = (TokenType.CONTROL, TokenType.USER_DEFINED)
USED = (TokenType.NORMAL, *ADDED)  # those of other types fill up ids
NORMALISERS = {"qwen2": NFC}  # which llama.cpp does not do, but Qwen's own tokenizer
IGNORE_MERGES = ("llama-bpe",)  # a piece that is a token is not merged from its bytes
BEGINS = ("llama-bpe",)  # texts begin with the token of the beginning, unless the file says no


def listed(file: GGUF, key: str, kind: type) -> list:
    found = file.metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(found, list) or not all(type(item) is kind for item in found):
        raise UserError(
            f"{file.path}: tokenizer.ggml.{key} is missing, or not a list of {kind.__name__}"
        )
    return found


def optional(file: GGUF, name: str, kind: type[T]) -> T | None:
    """Return a value if the metadata have it; raises UserError if it is of another type."""
    found = file.metadata.get(name)
    if found is not None and type(found) is not kind:
        told = brief(found)
        raise UserError(f"{file.path}: {name}={told} is not of type {kind.__name__}")
    return found


def check_vocabulary(file: GGUF, vocab_size: int) -> None:
    """Raise UserError unless the tokenizer is a supported one with as many tokens as the model."""
    model, pre = (file.metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    if model != "gpt2":
        raise UserError(
            f"{file.path}: tokenizer.ggml.model={brief(model)} is not supported, only "
            f"'gpt2' (byte-level BPE) is"
        )
    if not isinstance(pre, str) or pre not in PRE_TOKENIZERS:
        raise UserError(
            f"{file.path}: tokenizer.ggml.pre={brief(pre)} is not supported, only "
            f"{', '.join(PRE_TOKENIZERS)} are"
        )
    tokens, types = listed(file, "tokens", str), listed(file, "token_type", int)
    if not (len(tokens) == len(set(tokens)) == len(types) == vocab_size):
        raise UserError(
            f"{file.path} has {len(set(tokens))} tokens, {len(types)} types of them and "
            f"{vocab_size} rows of embeddings: they do not belong together"
        )
    known = set(tokens)
    for merge in listed(file, "merges", str):
        if len(parts := merge.split(" ")) != 2 or not {*parts, "".join(parts)} <= known:
            raise UserError(
                f"{file.path}: the merge {brief(merge)} is not of two tokens to a third"
            )


def tokenizer_json(file: GGUF) -> dict[str, Any]:
    """Return tokenizer.json of a tokenizer that `check_vocabulary` has let pass."""
    pre = file.metadata["tokenizer.ggml.pre"]
    tokens, types = listed(file, "tokens", str), listed(file, "token_type", int)
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": i, "content": token, **plain, "special": kind == TokenType.CONTROL}
        for i, (token, kind) in enumerate(zip(tokens, types))
        if kind in ADDED
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": NORMALISERS.get(pre),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": PRE_TOKENIZERS[pre]},
        "post_processor": opening(file, tokens),
        "decoder": GPT2_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre in IGNORE_MERGES,
            "vocab": {token: i for i, token in enumerate(tokens) if types[i] in USED},
            "merges": [merge.split(" ") for merge in listed(file, "merges", str)],
        },
    }


def opening(file: GGUF, tokens: list[str]) -> dict[str, Any] | None:
    """Return what puts the token of the beginning before each text, if the model wants it."""
    bos = name_of(file, "bos", tokens)
    begins = optional(file, "tokenizer.ggml.add_bos_token", bool)
    if begins is None:
        begins = file.metadata["tokenizer.ggml.pre"] in BEGINS
    if not begins or bos is None:
        return None
    first = {"SpecialToken": {"id": bos, "type_id": 0}}
    text = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    special = {bos: {"id": bos, "ids": [tokens.index(bos)], "tokens": [bos]}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text[0]],
        "pair": [first, *text],
        "special_tokens": special,
    }


def tokenizer_config(file: GGUF) -> dict[str, Any]:
    tokens = listed(file, "tokens", str)
    keys = (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
    names = {f"{ours}_token": name_of(file, key, tokens) for ours, key in keys}
    template = optional(file, "tokenizer.chat_template", str)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{key: name for key, name in names.items() if name is not None},
        **({} if template is None else {"chat_template": template}),
    }


def name_of(file: GGUF, key: str, tokens: list[str]) -> str | None:
    """Return the token that the metadata name by its id; raises UserError if there is none."""
    i = token_id(file, key, len(tokens))
    return None if i is None else tokens[i]


def token_id(file: GGUF, key: str, n: int) -> int | None:
    """Return the id that the metadata name, if they do; raises UserError if no token has it."""
    i = file.metadata.get(name := f"tokenizer.ggml.{key}_token_id")
    if i is not None and (type(i) is not int or not (0 <= i < n)):
        raise UserError(f"{file.path}: {name}={brief(i)} is no token's id")
    return i
