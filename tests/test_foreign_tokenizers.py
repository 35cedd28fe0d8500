"""Tokenizers made elsewhere: the ids are those of the `tokenizers` library.

Here they are small and made for the test; tests/test_real_models.py reads a real one.
"""

from itertools import islice
from pathlib import Path

import pytest
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as Fast

from export.pretrained.tokenizer import GPT2, GPT2_DIGITS, read_tokenizer
from gptcore.text.pieces import pieces
from gptcore.text.tokenizer import PATTERN, PORTABLE_PATTERN, Tokenizer, byte_to_unicode
from tests.foreign import MISSING, N_INCOMPLETE
from tests.hard_unicode import hard_texts


@pytest.fixture(scope="module")
def ours(incomplete: Path) -> Tokenizer:
    return read_tokenizer(incomplete, N_INCOMPLETE)


def test_missing_bytes_are_lost_as_in_the_other_library(incomplete: Path, ours: Tokenizer) -> None:
    theirs = Fast.from_file(str(incomplete / "tokenizer.json"))
    made = [
        "!\x04!",
        "!\x04!\x1c!~!",
        "\x04",
        "a\x04ab",
        " \x04 \n",
        "\u65f8x",
        "\U00045678",
        "1\x041",
    ]
    texts = [*made, *hard_texts(3000)]
    expected = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    assert ours.encode_batch(texts) == expected == list(map(ours.encode, texts))
    assert [ours.token_bytes(i) for i in ours.encode(made[0])] == [b"!!"]


def test_what_is_not_lost_comes_back(ours: Tokenizer) -> None:
    for text in hard_texts(300, seed=1):
        kept, ids = text.encode().translate(None, MISSING), ours.encode(text)
        stream = ours.stream()
        assert "".join(map(stream.push, ids)) + stream.finish() == ours.decode(ids)
        assert ours.decode(ids) == kept.decode(errors="replace")
        assert ours.byte_lengths[ids].sum() == len(kept)


def test_a_saved_tokenizer_lacks_the_same_bytes(ours: Tokenizer, tmp_path: Path) -> None:
    ours.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.sha256 == ours.sha256 and again.vocab_size == ours.vocab_size
    assert again.encode("!\x04!") == ours.encode("!\x04!") != ours.encode("!") * 2


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        (GPT2, [pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        (
            GPT2_DIGITS,
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ],
        ),
        (
            PATTERN,
            [
                pre_tokenizers.Split(Regex(PORTABLE_PATTERN), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ],
        ),
    ],
    ids=["gpt2", "digits", "ours"],
)
def test_pieces_are_split_as_in_the_other_library(pattern: str, written: list) -> None:
    """Also letters that are newer than that library, and old ones."""
    split, char_of = pre_tokenizers.Sequence(written), byte_to_unicode()
    new = "a\U0003347bb \U0003347b! \u0558x"
    for text in [new, *islice(hard_texts(9000, seed=2), 1500)]:
        found = [
            "".join(char_of[byte] for byte in piece.encode()) for piece in pieces(text, pattern)
        ]
        assert found == [piece for piece, _ in split.pre_tokenize_str(text)]
