"""Shards made in parts: the same for any number of parts, and joined by their lists alone."""

import gzip
import json
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zstandard
from chatml import FOREIGN
from conftest import Refused
from texts import zipped

import training.data.shards.folder
import training.data.shards.parts
import training.data.shards.shard
import training.data.survey
from gptcore.checks import UserError
from gptcore.system.files import file_sha256
from gptcore.text.chat_format import ChatFormat
from gptcore.text.tokenizer import Tokenizer
from training.__main__ import main
from training.data.batches import Batches
from training.data.rows import Rows
from training.data.shards.folder import Shards, load_shards
from training.data.shards.parts import Part, join_parts, units, write_part
from training.formats.found import Asked
from training.formats.places import find_files


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training.data.shards.parts, "UNIT_BYTES", 20_000)
    monkeypatch.setattr(training.data.shards.parts, "PIECE_BYTES", 5_000)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Many small files and a large one: texts, conversations, a reply that is not learned."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(12):
        (folder / f"{i:02}.txt").write_text(f"File {i} tells of {i * i}. " * 120)
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"What is {i}?"},
                {"role": "assistant", "content": f"A number, {i} " * 9, "weight": i % 5 and 1},
                {"role": "user", "content": "And now?"},
                {"role": "assistant", "content": "That, too."},
            ]
        }
        for i in range(400)
    ]
    (folder / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n{bad")
    return folder


def made(texts: Path, folder: Path, n: int, tokenizer: Tokenizer) -> Shards:
    files = find_files([texts])
    for number in reversed(range(1, n + 1)):
        write_part(files, Asked(), tokenizer, folder, Part(number, n))
    return join_parts(folder)


@pytest.mark.parametrize("n", [2, 8, 50])
def test_any_number_of_parts_gives_the_same_batches(
    texts: Path, tmp_path: Path, tokenizer: Tokenizer, n: int
) -> None:
    whole, parts = (made(texts, tmp_path / f"made-{k}", k, tokenizer) for k in (1, n))
    assert len(whole.split("train")) > 4 and whole.manifest == parts.manifest
    assert whole.manifest["n_documents"] == 12 + 400 and whole.manifest["n_chats"] == 400
    mine, theirs = (Batches(Rows(shards, "train", 64), 3, 8) for shards in (whole, parts))
    for step in range(2 * len(mine.rows) // 8):
        for a, b in zip(mine.batch(step), theirs.batch(step)):
            assert a.equal(b)


@pytest.mark.parametrize("name", ["a.zip", "a.jsonl.gz", "a.jsonl.zst", "two.jsonl.gz"])
def test_of_packed_texts_no_more_is_held_out(
    texts: Path, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(training.data.survey, "MAX_VALIDATION_BYTES", 3000)
    data = (texts / "chats.jsonl").read_bytes()
    half = len(data) // 2
    packed = {
        "a.zip": zipped({"chats.jsonl": data}),
        "a.jsonl.gz": gzip.compress(data),
        "a.jsonl.zst": zstandard.compress(data),
        "two.jsonl.gz": gzip.compress(data[:half]) + gzip.compress(data[half:]),
    }
    (tmp_path / name).write_bytes(packed[name])
    plain = made(texts / "chats.jsonl", tmp_path / "plain", 1, tokenizer).manifest["splits"]
    found = made(tmp_path / name, tmp_path / "packed", 2, tokenizer).manifest["splits"]
    assert found["val"]["n_tokens"] == plain["val"]["n_tokens"]
    assert 20 * found["val"]["n_tokens"] < found["train"]["n_tokens"]


def test_every_piece_is_made_by_one_part_that_shares_its_unit() -> None:
    for n, n_units in product(range(1, 12), range(1, 9)):
        parts = [Part(number, n) for number in range(1, n + 1)]
        makers = Counter[int]()
        for unit, piece in product(range(n_units), range(12)):
            [maker] = [part for part in parts if part.makes(unit, piece, n_units)]
            assert maker.shares(unit, n_units)
            makers[maker.number] += 1
        assert len(makers) == n or n > 12 * n_units
        sharing = sum(part.shares(unit, n_units) for part in parts for unit in range(n_units))
        assert sharing == max(n, n_units)


def test_small_files_are_read_together(texts: Path) -> None:
    grouped = units(find_files([texts]))
    assert len(grouped) > 1
    names = [file.name for group in grouped for file in group]
    assert names == [file.name for file in find_files([texts])]
    assert all(sum(file.size for file in group) >= 20_000 for group in grouped[:-1])


def test_a_piece_of_more_tokens_than_a_shard_has_overwrites_no_other_piece(
    texts: Path, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replies of a letter have more tokens than bytes."""
    expected = made(texts, tmp_path / "expected", 1, tokenizer).manifest
    monkeypatch.setattr(training.data.shards.shard, "SHARD_TOKENS", 100)
    assert made(texts, tmp_path / "made", 1, tokenizer).manifest == expected


def test_a_lost_part_is_made_again_alone(texts: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    files, folder = find_files([texts]), tmp_path / "made"
    expected = made(texts, tmp_path / "whole", 1, tokenizer).manifest
    for number in (1, 3):
        write_part(files, Asked(), tokenizer, folder, Part(number, 3))
    with pytest.raises(UserError, match=r"lacks part 2 of 3: make it with --part"):
        join_parts(folder)
    write_part(files, Asked(), tokenizer, folder, Part(2, 3))
    assert join_parts(folder).manifest == expected
    assert load_shards(folder).manifest == expected
    path = folder / Part(2, 3).name
    path.write_text(path.read_text()[:-40])
    with pytest.raises(UserError, match=r"part-2-of-3\.json is damaged .*: make this part again"):
        join_parts(folder)


def test_parts_of_different_texts_are_not_joined(
    texts: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    folder = tmp_path / "made"
    write_part(find_files([texts]), Asked(), tokenizer, folder, Part(1, 2))
    (texts / "00.txt").write_text("Another text. " * 99)
    write_part(find_files([texts]), Asked(), tokenizer, folder, Part(2, 2))
    with pytest.raises(UserError, match="of different texts, options or tokenizers"):
        join_parts(folder)


def test_a_folder_has_one_tokenizer(texts: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Other parts would have ids that it does not know."""
    files, folder, other = find_files([texts]), tmp_path / "made", Tokenizer.train([], 262)
    other.save(folder / "tokenizer")
    with pytest.raises(UserError, match="is another tokenizer than the one named"):
        write_part(files, Asked(), tokenizer, folder, Part(1, 1))
    write_part(files, Asked(), other, folder, Part(1, 1))
    tokenizer.save(folder / "tokenizer")
    with pytest.raises(UserError, match="is not the tokenizer of the parts"):
        join_parts(folder)


def test_a_join_reads_no_shard(
    texts: Path, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = made(texts, tmp_path / "made", 2, tokenizer).manifest
    hashed = []

    def sha256(path: Path) -> str:
        hashed.append(path.parent.name)
        return file_sha256(path)

    monkeypatch.setattr(training.data.shards.folder, "file_sha256", sha256)
    assert join_parts(tmp_path / "made").manifest == expected
    assert set(hashed) == {"tokenizer"}


def test_the_commands(texts: Path, tmp_path: Path, tokenizer: Tokenizer, refused: Refused) -> None:
    tokenizer.save(tmp_path / "tokenizer")
    words = ["shards", str(texts), "--tokenizer", str(tmp_path / "tokenizer")]
    words += ["--shards", str(tmp_path / "made")]
    for part in ("1/2", "2/2"):
        assert main([*words, "--part", part]) == 0
    assert main(["shards", "--join", "--shards", str(tmp_path / "made")]) == 0
    out = tmp_path / "run"
    shape = ["--set=steps=2", "--set=block_size=64", "--set=dtype=float32"]
    assert main(["--shards", str(tmp_path / "made"), "--preset=tiny", *shape, f"--out={out}"]) == 0
    for part, said in {"0/2": "write it as 3/64", "3/2": "write it as", "x": "--part x"}.items():
        assert said in refused(main, *words, "--part", part)
    assert "name the folder" in refused(main, "shards", texts, "--part=1/2")
    assert "holds no parts" in refused(main, "shards", "--join", f"--shards={tmp_path}")
    assert "--part needs --tokenizer" in refused(main, "shards", texts, *words[-2:], "--part=1/2")


def test_a_tokenizer_is_looked_at_before_the_texts(
    texts: Path, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "empty.txt").touch()
    words = ["shards", tmp_path / "empty.txt", "--tokenizer", tmp_path / "none"]
    assert f"no tokenizer at {tmp_path / 'none'}" in refused(main, *words)
    endless = Tokenizer(FOREIGN.ranks, special=FOREIGN.special, chat=ChatFormat())
    with pytest.raises(UserError, match=r"made/tokenizer cannot learn conversations: no special"):
        made(texts, tmp_path / "made", 1, endless)


def test_replies_that_are_not_learned_stay_so(
    texts: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    shards = made(texts, tmp_path / "made", 3, tokenizer)
    spans = [len(shard.unlearned) for split in ("train", "val") for shard in shards.split(split)]
    assert sum(spans) == 80
    assert not any(np.diff(shard.unlearned).min(initial=1) < 1 for shard in shards.split("train"))
