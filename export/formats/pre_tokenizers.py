"""How tokenizers made elsewhere split a text into pieces, within which tokens merge.

It is a pattern for tiktoken, a pre_tokenizer in tokenizer.json, and a name in llama.cpp.

>>> pattern_of({"pretokenizers": PRE_TOKENIZERS["gpt-2"]}) == GPT2
True
"""

import json
from typing import Any

from gptcore.checks import UserError

NFC = {"type": "NFC"}  # the only normaliser that is supported

# GPT-2's pattern, written so that no number of spaces overflows the engine's stack. With `Digits`
# before it, each digit is a piece of its own without the space before it.
WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++|"
SPACES = r" ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
# The usual end of a pattern, and an equivalent that many spaces do not overflow.
LAST, SAFE_LAST = r"|\s+(?!\S)|\s+", r"|\s++$|\s+(?!\S)|\s"
GPT2 = WORDS + r" ?\p{N}++|" + SPACES
GPT2_DIGITS = WORDS + r"\p{N}|\s++(?=\p{N})|" + SPACES

# The same to the letter as in openai/gpt-2, encoder.py: onnxruntime-genai knows the parts of a
# pattern by their spelling, and splits "Don't" otherwise where it does not know one.
PLAIN_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
DIGITS = {"type": "Digits", "individual_digits": True}
GPT2_LEVEL = BYTE_LEVEL | {"use_regex": True}


def split(*patterns: str) -> list[dict[str, Any]]:
    first = {"type": "Split", "behavior": "Isolated", "invert": False}
    steps = [first | {"pattern": {"Regex": pattern}} for pattern in patterns]
    return [*steps, BYTE_LEVEL | {"use_regex": False}]


# The pattern of Llama 3; Qwen's has one digit instead of three.
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# By tokenizer.ggml.pre, llama.cpp's name for how a text is split into pieces.
PRE_TOKENIZERS = {
    "gpt-2": [GPT2_LEVEL],
    "smollm": [DIGITS, GPT2_LEVEL],
    "llama-bpe": split(CL100K.replace("DIGITS", "{1,3}")),
    "qwen2": split(CL100K.replace("DIGITS", "")),
}


# What `Digits` and `ByteLevel` do of themselves, written out: in transformers.js they know the ten
# digits alone and JavaScript's white space, where they know every script's in Python. `Digits`
# stays before the pattern: in Python it knows numbers that are newer than the patterns' engine.
EXPLICIT = {
    GPT2: split(PLAIN_GPT2),
    GPT2_DIGITS: [DIGITS, *split(r"\p{N}", PLAIN_GPT2)],
}


def explicit(pre_tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Return a pre_tokenizer of the same pieces, of steps that all runtimes read alike."""
    steps = EXPLICIT.get(pattern_of(pre_tokenizer))
    return {"type": "Sequence", "pretokenizers": steps} if steps else pre_tokenizer


def pattern_of(pre_tokenizer: dict[str, Any] | None) -> str:
    """Return the pattern that splits a text into pieces; tokens merge only within a piece."""
    parts = (pre_tokenizer or {}).get("pretokenizers", [pre_tokenizer])
    # the library takes true where use_regex is not given
    match [part and {"use_regex": True} | part for part in parts]:
        case [{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]:
            return GPT2
        case [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        ]:
            return GPT2_DIGITS
        case [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ]:
            if pattern == PLAIN_GPT2:
                return GPT2
            return pattern.removesuffix(LAST) + SAFE_LAST if pattern.endswith(LAST) else pattern
        case _ if parts == EXPLICIT[GPT2_DIGITS]:
            return GPT2_DIGITS
    raise UserError(
        f"the pre_tokenizer of tokenizer.json is not supported, it must be ByteLevel without "
        f"add_prefix_space, alone or after Digits or one Split: {json.dumps(pre_tokenizer)[:200]}"
    )
