"""Shards at a URL: the same batches as from the disk, through a server that fails now and then."""

import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest
import torch
from conftest import NANO, Refused, until
from served import Quiet, served
from trained import newest_checkpoint

import training.data.shards.remote
import training.data.shards.shard
from gptcore.system.files import sealed, unseal
from gptcore.text.chat_template import loss_mask
from gptcore.text.tokenizer import Tokenizer
from training.__main__ import main
from training.data.batches import Batches
from training.data.corpus import read_documents
from training.data.rows import IGNORED, WINDOW, Rows
from training.data.shards.folder import Shards, load_shards, open_shards, prepare
from training.data.sources import shards_of
from training.formats.places import find_files
from training.run.config import TrainConfig
from training.run.directory import Run
from training.tasks.language import LanguageModelling

BLOCK = 24
FIRST = "train-00000.bin"


@pytest.fixture(scope="module")
def shards(chats: Path, tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Shards:
    """More than two windows of small shards."""
    files = find_files([chats])
    folder = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.data.shards.shard, "SHARD_TOKENS", 4000)
        made = prepare(lambda: read_documents(files), folder, 512, tokenizer)
    assert len(made.split("train")) > 2 * WINDOW
    return made


class Server:
    """A folder at a URL, with faults: a file's next answers are "broken off" or "damaged"."""

    def __init__(self, folder: Path):
        self.faults: dict[str, list[str]] = {}
        self.asked: Counter[str] = Counter()
        server = self

        class Handler(Quiet):
            def do_GET(self) -> None:
                name = self.path.removeprefix("/")
                server.asked[name] += 1
                data = (folder / name).read_bytes() if (folder / name).is_file() else None
                self.send_response(404 if data is None else 200)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                fault = server.faults.get(name) and server.faults[name].pop()
                if data and fault == "damaged":
                    data = data[:9] + bytes([data[9] ^ 8]) + data[10:]
                if data and fault == "broken off":
                    data = data[: len(data) // 2]
                self.wfile.write(data or b"")
                self.close_connection = True

        self.handler = Handler


@pytest.fixture
def server(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(training.data.shards.remote, "PAUSES", (0.01, 0.01))
    server = Server(shards.path)
    with served(server.handler) as server.url:
        yield server


def same_batches(left: Shards, right: Shards, n_steps: int) -> bool:
    pairs = [Batches(Rows(shards, "train", BLOCK), 1, 8) for shards in (left, right)]
    return all(
        torch.equal(x, y)
        for step in range(0, 4 * n_steps, 4)
        for x, y in zip(*(batches.batch(step) for batches in pairs))
    )


def in_cache(cache: Path) -> set[str]:
    return {path.name for path in cache.glob("train-*.bin")}


def slow_row(shards: Shards, shard: int, document: int, start: int) -> tuple[list, list]:
    """Inputs and targets of a row, from the bytes of the file."""
    ids = np.frombuffer((shards.path / f"train-{shard:05d}.bin").read_bytes(), np.uint16)
    learned = loss_mask(ids[document:], shards.tokenizer)[start - document :][1 : BLOCK + 1]
    ids = ids[start : start + BLOCK + 1].astype(int)
    return ids[:-1].tolist(), np.where(learned, ids[1:], IGNORED).tolist()


def test_batches_from_a_url_are_those_from_the_disk_and_from_the_bytes(
    shards: Shards, server: Server, tmp_path: Path
) -> None:
    remote = open_shards(server.url + "/", tmp_path)
    assert remote.location == server.url and not in_cache(tmp_path)
    assert same_batches(shards, remote, 40)
    assert same_batches(shards, load_shards(shards.path), 4)
    rows = Rows(remote, "train", BLOCK)
    shard = len(rows.split) - 1
    table = rows.packing(shard).table[:-1].tolist()  # the last one ends in padding
    x, y = rows.batch(np.arange(rows.first[shard], rows.first[shard] + len(table)))
    for i, (document, start, _) in enumerate(table):
        assert (x[i].tolist(), y[i].tolist()) == slow_row(shards, shard, document, start)
    assert Rows(remote, "val", BLOCK).batch(np.arange(3))[0].shape == (3, BLOCK)


def test_any_address_that_fsspec_knows_will_do(shards: Shards, tmp_path: Path) -> None:
    fsspec.filesystem("memory").put(str(shards.path), "/somewhere/shards", recursive=True)
    assert same_batches(shards, open_shards("memory://somewhere/shards", tmp_path), 3)


def test_a_download_that_breaks_off_or_is_damaged_is_fetched_again(
    shards: Shards, server: Server, tmp_path: Path
) -> None:
    faulty = (FIRST, "train-00002.bin", "train-00001.starts.npy", "val-00000.bin", "manifest.json")
    server.faults = {name: ["broken off"] for name in faulty}
    server.faults[FIRST] += ["damaged"]
    server.faults["train-00001.bin"] = ["damaged", "damaged"]
    remote = open_shards(server.url, tmp_path)
    for mine, theirs in zip(remote.split("train"), shards.split("train")):
        assert mine[:].tolist() == theirs[:].tolist()
    assert not any(server.faults.values())
    assert server.asked[FIRST] == server.asked["train-00001.bin"] == 3
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("fault", ["broken off", "damaged", "gone"])
def test_what_cannot_be_fetched_soundly_ends_in_one_line(
    server: Server, shards: Shards, tmp_path: Path, refused: Refused, fault: str
) -> None:
    name = "manifest.json" if fault == "gone" else "val-00000.bin"
    url = server.url + ("/nothing" if fault == "gone" else "")
    server.faults[name] = [fault] * 9
    said = refused(main, "--shards", url, "--preset", "tiny", "--out", tmp_path / "run")
    assert f"{url}/{name} cannot be fetched" in said
    assert server.asked["nothing/manifest.json" if fault == "gone" else name] == (
        1 if fault == "gone" else 3
    )
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_few_shards_are_on_the_disk_and_the_next_ones_come_before_they_are_needed(
    shards: Shards, server: Server, tmp_path: Path
) -> None:
    remote = open_shards(server.url, tmp_path)
    batches = Batches(Rows(remote, "train", BLOCK), 1, 1)
    windows, bounds = batches.windows(0)
    for window in (0, 1):
        near = batches.near(int(bounds[window]))
        remote.hold(near)
        expected = {f"train-{i:05d}.bin" for i in [*windows[window], *windows[window + 1], 0]}
        until(lambda: in_cache(tmp_path) == expected)  # noqa: B023
        assert len(expected) <= 2 * WINDOW + 1
    fetched = server.asked.copy()
    batches.batch(int(bounds[2]))
    assert server.asked == fetched


def test_what_another_process_may_still_read_is_kept_for_a_step(
    shards: Shards, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that share the fetched shards may be a batch apart."""
    remote = open_shards(server.url, tmp_path)
    held: list[set[str]] = []
    monkeypatch.setattr(Shards, "hold", lambda _, names: held.append(set(names)))
    train = TrainConfig(batch_size=1, seed=1)
    data = SimpleNamespace(few_held_out=False)
    run = SimpleNamespace(options={}, train=train, row_tokens=BLOCK, data=data)
    task = LanguageModelling(run, remote)
    windows, bounds = task.batches.windows(0)
    before, after = ({f"train-{i:05d}" for i in windows[at]} for at in (0, 1))
    for step in (int(bounds[1]), int(bounds[1]) + 1):
        task.batch(step)
    assert held[0] > before | after and held[1] > after and not before <= held[1]


def test_what_a_pause_left_is_used_again_if_it_is_sound(
    shards: Shards, server: Server, tmp_path: Path
) -> None:
    for name in (FIRST, "train-00001.bin"):
        open_shards(server.url, tmp_path).locate(name)
    (tmp_path / FIRST).write_bytes(b"not this")
    (tmp_path / f"{FIRST}.part").write_bytes(b"nor this")
    before = server.asked.copy()
    again = open_shards(server.url, tmp_path)
    assert again.split("train")[0][:].tolist() == shards.split("train")[0][:].tolist()
    assert again.split("train")[1][:].tolist() == shards.split("train")[1][:].tolist()
    assert server.asked - before == {"manifest.json": 1, FIRST: 1}
    (tmp_path / FIRST).unlink()  # by another process
    assert len(again.split("train")[0][:9]) == 9


def test_processes_that_share_a_folder_fetch_each_file_once(
    shards: Shards, server: Server, tmp_path: Path
) -> None:
    def read(_: int) -> list[list[int]]:
        return [shard[:].tolist() for shard in open_shards(server.url, tmp_path).split("train")]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(read, range(4)))
    assert results == [[shard[:].tolist() for shard in shards.split("train")]] * 4
    del server.asked["manifest.json"]
    assert set(server.asked.values()) == {1}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("oci://bucket/key", ["ocifs"]),
        ("nonsense://bucket", ["nonsense"]),
        ("http://127.0.0.1:9/key", ["cannot be fetched", "manifest.json"]),
    ],
)
def test_an_address_that_cannot_be_opened_is_refused_by_name(
    url: str,
    words: list[str],
    refused: Refused,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training.data.shards.remote, "PAUSES", ())
    said = refused(main, "--shards", url, "--out", tmp_path / "run")
    assert url in said and all(word in said for word in words)


@pytest.mark.parametrize("damage", ["a name", "no sizes", "no counts", "no JSON", "a list", "flip"])
def test_a_manifest_that_is_none_is_refused(
    shards: Shards, tmp_path: Path, refused: Refused, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.data.shards.remote, "PAUSES", ())
    manifest = unseal((shards.path / "manifest.json").read_text())
    if damage == "a name":
        manifest["sha256"]["../../evil"] = "0" * 64
    if damage == "no sizes":
        del manifest["bytes"]
    if damage == "no counts":
        del manifest["n_documents"]
    text = {"no JSON": "{", "a list": "[1]"}.get(damage) or sealed(manifest)
    text = text.replace('"n_chats": ', '"n_chats": 1') if damage == "flip" else text
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "manifest.json").write_text(text)
    said = refused(main, "--shards", f"file://{folder}", "--out", tmp_path / "run")
    assert f"{folder}/manifest.json" in said


def test_training_on_a_url_is_training_on_the_text_and_goes_on_from_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"Sheep number {i} jumps, {i * i} follow it.\n" for i in range(900)))
    settings = ("--preset=tiny", "--set=block_size=32", "--set=n_layer=1", "--set=vocab_size=270")
    assert main(["shards", str(text), *settings, f"--shards={tmp_path / 'made'}"]) == 0
    [made] = (path for path in (tmp_path / "made").iterdir() if path.is_dir())
    assert f"wrote {made}; to train on it" in capsys.readouterr().out
    url, weights = f"file://{made}", []
    for name, words in (
        ("text", [str(text), f"--shards={made.parent}"]),
        ("url", ["--shards", url]),
    ):
        out = tmp_path / name
        assert main([*words, *settings, "--set=steps=1", f"--out={out}"]) == 0
        weights.append(newest_checkpoint(out / "checkpoints")[0].model)
    assert all(torch.equal(weights[1][name], tensor) for name, tensor in weights[0].items())
    assert [path for path in made.parent.iterdir() if path.is_dir()] == [made]

    run = Run.load(tmp_path / "url")
    local = Run.load(tmp_path / "text")
    assert run.data == replace(local.data, shards=url, source=url)
    shutil.rmtree(run.path / "cache")
    whole = LanguageModelling(local, shards_of(local))
    assert torch.equal(LanguageModelling(run, shards_of(run)).batch(1)[0], whole.batch(1)[0])
    assert same_batches(open_shards(str(made), run.path), whole.shards, 2)

    out = ("--out", tmp_path / "new")
    assert "name no text" in refused(main, text, "--shards", url, *out)
    said = refused(main, "--shards", url, "--tokenizer", NANO, *out)
    assert f"have another tokenizer than {NANO}" in said
    manifest = unseal((made / "manifest.json").read_text()) | {"corpus_sha256": "other"}
    (made / "manifest.json").write_text(sealed(manifest))
    (run.path / "summary.json").unlink()  # as if it had been stopped
    assert "no longer those of" in refused(main, "--out", run.path, "--resume")
