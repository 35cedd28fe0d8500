"""Tokenizers made elsewhere: the ids are those of the `tokenizers` library.

Here they are small and made for the test; tests/pretrained/test_real_models.py reads a real one.
"""

import json
import pickle
import unicodedata
from itertools import islice
from pathlib import Path

import pytest
from foreign import ADDED, MISSING, N_INCOMPLETE, N_TRAINED
from tokenizers import Tokenizer as Fast
from tokenizers.models import BPE
from tokenizers.normalizers import NFC

from export.formats.pre_tokenizers import (
    BYTE_LEVEL,
    PRE_TOKENIZERS,
    explicit,
    pattern_of,
    split,
)
from export.kit.hard_texts import hard_texts
from export.pretrained.tokenizer import read_tokenizer
from gptcore.checks import UserError
from gptcore.text.letters import to_letters
from gptcore.text.parts import LONGEST_RUN, Parts
from gptcore.text.pieces import pieces
from gptcore.text.tokenizer import PATTERN, PORTABLE_PATTERN, Tokenizer


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
    assert [ours.encode(text) for text in texts] == expected
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


OURS = {"ours": split(PORTABLE_PATTERN)}


@pytest.mark.parametrize("kind", [*PRE_TOKENIZERS, *OURS])
def test_pieces_are_split_as_in_the_other_library(kind: str) -> None:
    """Also letters that are newer than that library, and old ones."""
    content = json.loads(Fast(BPE()).to_str())
    steps = {"type": "Sequence", "pretokenizers": (PRE_TOKENIZERS | OURS)[kind]}
    theirs = Fast.from_str(json.dumps(content | {"pre_tokenizer": steps})).pre_tokenizer
    pattern = PATTERN if kind == "ours" else pattern_of(steps)
    new = "a\U0003347bb \U0003347b! \u0558x"
    for text in [new, *islice(hard_texts(9000, seed=2), 1500)]:
        found = [to_letters(piece.encode()) for piece in pieces(text, pattern)]
        assert found == [piece for piece, _ in theirs.pre_tokenize_str(text)]


@pytest.mark.parametrize("n", [500, pytest.param(25_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", PRE_TOKENIZERS)
def test_ids_of_hard_unicode_are_those_of_the_other_library(
    kind: str, n: int, trained_elsewhere: dict[str, Path]
) -> None:
    """In all 100,000 texts for the four ways of splitting them, and some marks to be put in order.

    That library's NFC is of Unicode 9: of 100 marks that are newer it does not know the order.
    """
    ours = read_tokenizer(trained_elsewhere[kind], N_TRAINED)
    theirs = without_special(trained_elsewhere[kind])
    marks = ("e\u0301\u0327", "<end>\u0338", "\u1100\u1161\u11a8", "\u212b\u0344", "end|>!!")
    texts = [*marks, "", *hard_texts(n, seed=6)]
    known = [t for t in texts if not ours.normal_form or NFC().normalize_str(t) == nfc(t)]
    assert len(known) >= 0.9999 * len(texts)
    expected = [e.ids for e in theirs.encode_batch(known, add_special_tokens=False)]
    assert [ours.encode(text) for text in known] == expected
    assert all(ours.special["<|stop|>"] not in ids for ids in expected)
    change = nfc if ours.normal_form else str
    whole = [text for text in known[:500] if not set(ADDED) & set(ours._parts.split(text))]
    assert len(whole) > 300
    for text in whole:
        assert ours.decode(ours.encode(text)) == change(text)


def test_a_million_marks_to_be_sorted_are_refused() -> None:
    parts = Parts([], "NFC")
    marks = "\u0323\u0301"
    assert parts.split("a" + marks * 499) == [nfc("a" + marks * 499)]
    with pytest.raises(UserError, match="more than 1,000 combining marks in a row"):
        parts.split("a" + marks * 500_000)
    assert Parts([], "").split(marks * 500_000)


@pytest.mark.parametrize("n", [3000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", PRE_TOKENIZERS)
def test_steps_that_are_written_out_give_the_same_ids(
    kind: str, n: int, trained_elsewhere: dict[str, Path]
) -> None:
    content = json.loads((trained_elsewhere[kind] / "tokenizer.json").read_text(encoding="utf-8"))
    before = Fast.from_str(json.dumps(content))
    steps = explicit(content["pre_tokenizer"])
    after = Fast.from_str(json.dumps(content | {"pre_tokenizer": steps}))
    assert steps["pretokenizers"][-1] == BYTE_LEVEL | {"use_regex": False}
    assert pattern_of(steps) == pattern_of(content["pre_tokenizer"])  # llama.cpp's name follows
    texts = [*hard_texts(n, seed=9)]
    assert [e.ids for e in after.encode_batch(texts)] == [e.ids for e in before.encode_batch(texts)]


def without_special(folder: Path) -> Fast:
    """The other library's tokenizer, which does not take a text's words for special tokens."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for token in content["added_tokens"]:
        if token["special"]:
            token["content"] = f"\0 in no text {token['id']}"
    return Fast.from_str(json.dumps(content))


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def test_an_added_token_is_text_that_no_normalising_and_no_end_touches(
    trained_elsewhere: dict[str, Path], tmp_path: Path
) -> None:
    ours = read_tokenizer(trained_elsewhere["qwen2"], N_TRAINED)
    ids = ours.encode("e\u0301<end>\u0338<|stop|>")
    assert ours.added["<end>"] in ids and ours.special.keys() >= {"<|stop|>"}
    assert "<end>" not in ours.special and ours.special["<|stop|>"] not in ids
    assert ours.decode(ids) == "\u00e9<end>\u0338<|stop|>"
    stream = ours.stream()
    assert "".join(map(stream.push, ids)) + stream.finish() == ours.decode(ids)
    ours.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.sha256 == ours.sha256 and again.encode("e\u0301<end>") == ours.encode(
        "\u00e9<end>"
    )
    assert pickle.loads(pickle.dumps(ours)).encode("e\u0301<end>") == again.encode("e\u0301<end>")


@pytest.mark.parametrize("pre", ["qwen2", "llama-bpe"])
def test_the_longest_run_of_white_space_overflows_no_stack(
    pre: str, trained_elsewhere: dict[str, Path]
) -> None:
    ours = read_tokenizer(trained_elsewhere[pre], N_TRAINED)
    for text in (" " * LONGEST_RUN + "x", " " * (2 * LONGEST_RUN), "\n" * (LONGEST_RUN - 1) + " x"):
        assert ours.decode(ours.encode(text)) == text
