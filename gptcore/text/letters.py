"""GPT-2's letters: a printable character for each byte. tokenizer.json and GGUF write tokens so.

>>> to_letters(" café".encode())
'ĠcafÃ©'
>>> from_letters("ĠcafÃ©").decode()
' café'
"""

# As in openai/gpt-2, encoder.py: printable bytes stand for themselves, the others follow.
PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = sorted({*range(256)} - {*PRINTABLE})
LETTERS = dict(zip([*PRINTABLE, *OTHERS], map(chr, [*PRINTABLE, *range(256, 512)])))
BYTES = {letter: byte for byte, letter in LETTERS.items()}


def to_letters(token: bytes) -> str:
    return "".join(map(LETTERS.__getitem__, token))


def from_letters(text: str) -> bytes:
    """Return the bytes that a token stands for; raises KeyError for a character that is none."""
    return bytes(map(BYTES.__getitem__, text))
