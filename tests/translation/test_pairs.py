"""Sentence pairs: what is read, how it is split, and which batch a step sees."""

import gzip
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from texts import write, zipped

from gptcore.checks import UserError
from gptcore.text.tokenizer import Tokenizer
from training.data.pairs.batches import POOL, PairBatches
from training.data.pairs.sentences import (
    MAX_VALIDATION,
    Encoded,
    Pair,
    encode_pairs,
    read_pairs,
    split_pairs,
    write_pairs,
)
from training.data.rows import IGNORED

BYTES = Tokenizer({bytes([b]): b for b in range(256)})
START, END = BYTES.special["<|endoftext|>"], BYTES.special["<|end|>"]


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        ("你好\tHello\n再见\tBye\n", [("你好", "Hello"), ("再见", "Bye")]),
        ("你好\tHello", [("你好", "Hello")]),
        ("a\tb\tCC-BY 2.0 (France)\t\t#12\n", [("a", "b")]),
        ("a\tb\r\nc\td\r\n", [("a", "b"), ("c", "d")]),
        ("\ufeffa\tb\n", [("a", "b")]),
        ("\n  \n a \t\u3000b \n\n", [("a", "b")]),
        ("a\tb\na\tc\na\tb\n", [("a", "b"), ("a", "c"), ("a", "b")]),
        ("a\u2028b\tc\u0085d\n", [("a\u2028b", "c\u0085d")]),
    ],
    ids=["two", "no last line end", "columns", "CRLF", "BOM", "blanks", "repeated", "odd spaces"],
)
@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.tsv.gz"])
def test_pairs_are_the_first_two_columns(
    content: str, pairs: list[Pair], name: str, tmp_path: Path
) -> None:
    path = write(tmp_path / name, content)
    assert read_pairs(path) == pairs
    assert read_pairs(path, reverse=True) == [(b, a) for a, b in pairs]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.tsv", b"a\tb\n\nno pair\n", "p.tsv, line 3: the line has no tab"),
        ("p.tsv", b"a\tb\n\tb\n", "p.tsv, line 2: one side is empty"),
        ("p.tsv", b"a\t\n", "p.tsv, line 1: one side is empty"),
        ("p.tsv", b"a\t \tlicence\n", "p.tsv, line 1: one side is empty"),
        ("p.tsv", "你好\tHello\n".encode("utf-16-le"), "p.tsv: it is UTF-16 without"),
        ("p.tsv", "a\té\n".encode() + b"\xff", "p.tsv is not UTF-8 text"),
        ("p.tsv", b"", "p.tsv holds no pairs"),
        ("p.tsv", b"\n \n\r\n", "p.tsv holds no pairs"),
        ("p.tsv.gz", gzip.compress(b"a\tb\n" * 99, mtime=0)[:-9], "is a damaged archive"),
        ("p.tsv.gz", gzip.compress(b"", mtime=0), "p.tsv.gz holds no pairs"),
        (
            "p.zip",
            zipped({"about": b"From Tatoeba.", "fra": b"a\tb\n"}),
            "p.zip: it holds 2 files, not one: unpack it, and name the one with the pairs",
        ),
        ("p.zip", zipped({"fra": b"a\tb\n"})[:-9], "is a damaged archive"),
    ],
)
def test_a_file_that_is_no_list_of_pairs_is_refused(
    name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        read_pairs(write(tmp_path / name, content))


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.tsv", tmp_path):
        with pytest.raises(UserError, match="is not a file: name one with"):
            read_pairs(path)


def test_written_pairs_are_read_as_they_were(tmp_path: Path) -> None:
    pairs = [("a  b", "c"), ('"q', "😀\u2028x"), ("a  b", "d")]
    write_pairs(pairs, tmp_path / "deep" / "pairs.tsv")
    assert read_pairs(tmp_path / "deep" / "pairs.tsv") == pairs


@pytest.mark.parametrize("n", [2, 3, 10, 500, 3000])
def test_the_split_keeps_a_sentence_on_one_side_and_neither_side_is_empty(n: int) -> None:
    pairs = [(f"source {i // 2}", f"target {i}") for i in range(n + n % 2 + 2)]
    training, validation = split_pairs(pairs)
    assert training and validation and sorted(training + validation) == sorted(pairs)
    assert not {source for source, _ in training} & {source for source, _ in validation}
    if n == 3000:
        assert 0.01 * n < len(validation) < 0.03 * n
    assert split_pairs(pairs) == (training, validation), "it does not change"


def test_the_held_out_pairs_are_a_few_hundred_at_most() -> None:
    _, validation = split_pairs([(f"{i}", "x") for i in range(60_000)])
    assert 0.8 * MAX_VALIDATION < len(validation) < 1.2 * MAX_VALIDATION


def test_a_sentence_is_on_the_same_side_whatever_the_order_of_the_file() -> None:
    pairs = [(f"source {i}", f"target {i}") for i in range(400)]
    validation = split_pairs(pairs)[1]
    assert set(split_pairs(pairs[::-1])[1]) == set(validation)


def test_pairs_of_one_and_the_same_source_cannot_be_split() -> None:
    with pytest.raises(UserError, match="all pairs have the same source"):
        split_pairs([("a", "b"), ("a", "c")])


def test_a_source_ends_and_a_target_begins_and_ends_with_special_tokens() -> None:
    pair = ("hé", "<|end|>")
    fitting, encoded = encode_pairs([pair], BYTES, BYTES, 99, "")
    assert fitting == [pair]
    [(source, target)] = encoded
    assert [*source] == [*"hé".encode(), END] and [*target] == [START, *b"<|end|>", END]


def test_pairs_longer_than_the_context_are_left_out() -> None:
    pairs = [("a" * 4, "b"), ("a", "b" * 4), ("a" * 5, "b"), ("a", "b" * 5), ("a" * 9, "b" * 9)]
    fitting, encoded = encode_pairs(pairs, BYTES, BYTES, 5, "")
    assert [(len(s), len(t)) for s, t in encoded] == [(5, 3), (2, 6)]  # inputs: target but one
    assert fitting == pairs[:2]
    with pytest.raises(UserError, match="to measure on is longer than block_size=1: enlarge it"):
        encode_pairs(pairs, BYTES, BYTES, 1, "to measure on")


def random_pairs(n: int) -> list[Encoded]:
    """Pairs of random lengths, each with ids of its own."""
    rng = np.random.default_rng(0)
    return [([i] * int(rng.integers(1, 9)), [i] * int(rng.integers(2, 12))) for i in range(n)]


def members(batch: tuple[torch.Tensor, ...]) -> list[int]:
    """The numbers of the pairs in a batch of `random_pairs`."""
    return batch[0][:, 0].tolist()


@pytest.mark.parametrize(("n", "size"), [(1, 4), (7, 1), (64, 8), (50, 8), (3 * POOL + 5, 2)])
def test_each_epoch_holds_every_pair_once(n: int, size: int) -> None:
    batches = PairBatches(random_pairs(n), size)
    steps = batches.steps_per_epoch
    assert steps == -(-n // size)
    for epoch in range(3):
        seen = [members(batches.batch(1, epoch * steps + i)) for i in range(steps)]
        assert sorted(chain(*seen)) == list(range(n)) and max(map(len, seen)) <= size
    assert sorted(chain(*map(members, batches))) == list(range(n)), "iteration too"


def test_a_batch_is_a_function_of_seed_and_step_alone() -> None:
    pairs, steps = random_pairs(100), [0, 13, 40, 5, 13, 26, 0, 25]
    first = PairBatches(pairs, 8)
    expected = {step: first.batch(1, step) for step in range(41)}
    for step in steps:  # forth and back over epochs, from an object that saw nothing before
        for objects in (first, PairBatches(pairs, 8)):
            assert all(map(torch.equal, objects.batch(1, step), expected[step]))
    epochs = [[members(expected[e * 13 + i]) for i in range(13)] for e in range(2)]
    other = [members(first.batch(2, i)) for i in range(13)]
    assert epochs[0] != epochs[1] and epochs[0] != other


def padding(batches: list[tuple[torch.Tensor, ...]]) -> float:
    """The share of source ids that are padding."""
    return 1 - sum(int(b[1].sum()) for b in batches) / sum(b[1].numel() for b in batches)


def test_pairs_of_like_length_share_a_batch() -> None:
    batches = PairBatches(random_pairs(400), 8)
    shuffled = [batches.batch(1, i) for i in range(batches.steps_per_epoch)]
    assert padding(shuffled) < 0.05 < 0.3 < padding(list(batches))
    longest = [batch[0].shape[1] for batch in shuffled]
    assert longest != sorted(longest), "but short and long batches are mixed"


def test_a_batch_is_padded_on_the_right_masked_and_shifted_by_one() -> None:
    pairs = [([5, 6, 9], [1, 7, 8, 2]), ([4, 9], [1, 3, 2])]
    source_ids, source_mask, input_ids, attention_mask, targets = next(iter(PairBatches(pairs, 2)))
    assert source_ids.tolist() == [[5, 6, 9], [4, 9, 0]]
    assert source_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert input_ids.tolist() == [[1, 7, 8], [1, 3, 0]]
    assert attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert targets.tolist() == [[7, 8, 2], [3, 2, IGNORED]]
    assert {t.dtype for t in (source_ids, input_ids, targets)} == {torch.int64}


def test_the_targets_are_counted_for_the_speed() -> None:
    pairs = random_pairs(50)
    batches = PairBatches(pairs, 8)
    assert batches.n_target_tokens == sum(int((b[-1] != IGNORED).sum()) for b in batches)


def test_pairs_that_are_not_utf8_are_read_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pairs.tsv"
    pairs = [
        ("Hello, how are you?", "你好,你怎么样?"),
        ("The weather is fine today.", "今天天气很好。"),
    ]
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in pairs).encode("gb18030"))
    assert read_pairs(path) == pairs
    assert (
        "pairs.tsv: read as GB18030 (if its letters look wrong, save it as UTF-8)"
        in capsys.readouterr().out
    )
