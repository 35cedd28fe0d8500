"""Data sets by name: from a prepared mirror, from publishers' files, or from a server."""

import dataclasses
import gzip
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from conftest import ROOT
from served import Quiet, served
from texts import zipped

import training.datasets.reading
import training.machine.download
from gptcore.checks import UserError
from gptcore.system.files import file_sha256, write_whole
from gptcore.text.chat_template import messages_of
from training.__main__ import main
from training.datasets.origins import Origin
from training.datasets.parsers import gsm8k
from training.datasets.reading import VARIABLE, read_dataset
from training.datasets.registry import DATASETS, PREPARED

GSM8K = DATASETS["gsm8k"].origins[0].file_name
INSTRUCT = DATASETS["rasbt-instruct"].origins[0].file_name
TALKS = "r/corpus/movies/a.csv"


def damaged(zipped: bytes, name: str) -> bytes:
    """With a first block of compressed data that is of no known type."""
    start = zipped.index(name.encode()) + len(name)
    return zipped[:start] + b"\xff" + zipped[start + 1 :]


def question(number: int) -> str:
    row = {"question": f"What is {number} and 1?", "answer": f"It is more.\n#### {number + 1}"}
    return json.dumps(row) + "\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's own cache."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gptcore" / "data"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of prepared files, and their hashes in the registry."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    rows = [("jokes", ["Why?", "Because."])]
    rows += [("self-dialogue", ["A cab.", 'From "source": "jokes"?'])]
    rows += [("jokes", ["Who?", "Me."])] * 2 + [("tinystories-chat", ["Hi!", "Hello!"])]
    lines = [json.dumps({"source": name, "messages": messages_of(turns)}) for name, turns in rows]
    for name, text in {
        "chat.jsonl.gz": "\n".join(lines),
        "text.txt.gz": "One story.\n<|endoftext|>\nAnother one.",
    }.items():
        (folder / name).write_bytes(gzip.compress(text.encode()))
        monkeypatch.setitem(PREPARED, name, file_sha256(folder / name))
    return folder


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The publisher of a gsm8k of six questions, one of them unfit and one there twice."""
    monkeypatch.setattr(training.machine.download, "PAUSES", ())
    folder = tmp_path / "site" / "o" / "r"
    folder.mkdir(parents=True)
    text = "".join(map(question, (1, 2, 3, 2, 4))) + question(5).replace("more", "shit")
    (folder / "train.jsonl").write_text(text)

    with served(partial(Quiet, directory=tmp_path / "site")) as address:
        url = f"{address}/o/r/train.jsonl"
        publish(monkeypatch, Origin(url, gsm8k))
        yield url


def publish(monkeypatch: pytest.MonkeyPatch, *origins: Origin) -> None:
    changed = dataclasses.replace(DATASETS["gsm8k"], origins=origins)
    monkeypatch.setitem(DATASETS, "gsm8k", changed)


def refused(name: str, data_dir: Path | None = None) -> str:
    with pytest.raises(UserError) as error:
        list(read_dataset(name, data_dir))
    return str(error.value)


def test_each_data_set_has_a_licence_and_an_attribution() -> None:
    for name, dataset in DATASETS.items():
        assert dataset.licence and dataset.attribution and dataset.about.isascii(), name
        assert dataset.prepared in PREPARED, name


def test_the_page_on_data_has_them_all() -> None:
    rows = (ROOT / "docs" / "data.md").read_text(encoding="utf-8").splitlines()
    for name, d in DATASETS.items():
        licence = d.licence + " (*)" * d.share_alike
        assert f"| [{name}]({d.homepage}) | {licence} | {d.attribution} | {d.trust} |" in rows


def test_programs_get_a_list_of_all_data_sets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["datasets", "--json", "--data-dir", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found] == [*DATASETS]
    assert all({"licence", "where", "about"} < row.keys() for row in found)


def test_a_data_set_is_written_as_a_file_to_train_on(
    mirror: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "jokes.jsonl"
    command = ["datasets", "jokes", "--data-dir", str(mirror), "--out", str(out)]
    write_whole(out.with_name("jokes.jsonl.tmp"), '{"text": "of a process that was killed"}\n')
    assert main(command) == 0
    documents = [*read_dataset("jokes", mirror)]
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert written == [{"messages": document} for document in documents]
    capsys.readouterr()
    assert main(["look", str(out)]) == 0
    assert f"{len(documents):,} conversation" in capsys.readouterr().out
    assert main(command) == 2  # nothing is overwritten
    assert f"{out} exists" in capsys.readouterr().err
    assert main(["datasets", "--out", str(tmp_path / "none.jsonl")]) == 2
    assert main(["datasets", "dolly", "--data-dir", str(mirror), "--out", str(tmp_path / "x")]) == 2
    assert not [*tmp_path.glob("x*")], "what failed leaves nothing"


def test_the_table_says_which_data_sets_are_pinned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["datasets", "--data-dir", str(tmp_path)]) == 0
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert all(f"  {dataset.trust}  " in lines[name] for name, dataset in DATASETS.items())
    assert DATASETS["gsm8k"].trust == "pinned" and DATASETS["jokes"].trust == "first use"
    assert DATASETS["stories"].trust == "1 of 4 pinned"


def test_each_origin_names_a_commit_and_has_a_file_of_its_own() -> None:
    origins = {origin.url: origin for d in DATASETS.values() for origin in d.origins}
    for url in origins:
        commits = [part.removesuffix(".zip") for part in url.split("/")[5:]]
        assert any(len(c) in (12, 40) and int(c, 16) for c in commits if is_hexadecimal(c)), url
    assert len({origin.file_name for origin in origins.values()}) == len(origins)


def is_hexadecimal(text: str) -> bool:
    return set(text) <= set("0123456789abcdef")


def test_prepared_chats_are_those_of_the_source(mirror: Path) -> None:
    once, again = messages_of(["Why?", "Because."]), messages_of(["Who?", "Me."])
    assert list(read_dataset("jokes", mirror)) == [once, again, again]
    assert len(list(read_dataset("self-dialogue", mirror))) == 1


def test_a_data_set_without_documents_is_refused(mirror: Path) -> None:
    """Else a mix would be trained on without it, and nobody would know."""
    said = refused("gsm8k", mirror)
    assert f"dataset gsm8k: {mirror / 'chat.jsonl.gz'} has" in said and "--data-dir" in said
    assert "dataset story-questions: tinystories-chat has" in refused("story-questions", mirror)


def test_prepared_texts_are_read_whole(mirror: Path) -> None:
    assert list(read_dataset("stories", mirror)) == ["One story.\n", "Another one."]


def test_a_mirror_may_be_named_by_the_environment(
    mirror: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, str(mirror))
    assert len(list(read_dataset("jokes"))) == 3
    assert main(["datasets", "jokes"]) == 0
    assert "jokes: 3 documents, 29 bytes" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["jokes", "stories"])
def test_a_prepared_file_with_a_wrong_hash_is_refused(mirror: Path, name: str) -> None:
    file = mirror / DATASETS[name].prepared
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert str(file) in (said := refused(name, mirror)) and "SHA-256" in said


def test_publishers_files_are_read_where_they_are_put(tmp_path: Path) -> None:
    """Without a network; and what is known of a file is checked."""
    rows = [{"instruction": "Say yes.", "input": "", "output": "Yes."}] * 2
    (tmp_path / INSTRUCT).write_text(json.dumps(rows))
    assert list(read_dataset("rasbt-instruct", tmp_path)) == [messages_of(["Say yes.", "Yes."])]
    (tmp_path / GSM8K).write_text(question(1))
    assert GSM8K in (said := refused("gsm8k", tmp_path)) and "SHA-256" in said


def test_what_is_missing_is_downloaded_once(
    server: str, home: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["datasets", "gsm8k"]) == 0
    assert "gsm8k: 4 documents" in capsys.readouterr().out
    assert (home / "o.r.train.jsonl").is_file()
    before = (home / "o.r.train.jsonl").stat().st_mtime_ns
    documents = list(read_dataset("gsm8k"))
    assert documents[0] == messages_of(["What is 1 and 1?", "It is more. The answer is 2."])
    assert (home / "o.r.train.jsonl").stat().st_mtime_ns == before


def test_a_download_goes_into_the_named_folder(server: str, tmp_path: Path, home: Path) -> None:
    assert main(["datasets", "gsm8k", "--data-dir", str(tmp_path)]) == 0
    assert (tmp_path / "o.r.train.jsonl").is_file() and not home.exists()


def test_a_download_that_fails_is_one_line_and_the_exit_code(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    publish(monkeypatch, Origin(server.replace("train", "absent"), gsm8k))
    assert main(["datasets", "gsm8k"]) == 2
    trusted, error = capsys.readouterr().err.splitlines()
    assert "this first download is trusted" in trusted and error.startswith("error: http")


def test_a_folder_that_cannot_be_written_is_named(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gptcore").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "name another --data-dir" in refused("gsm8k")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rasbt-instruct", b"<html>"),
        ("rasbt-instruct", b'[{"input": 1}]'),
        ("rasbt-instruct", b"{}1"),
        ("rasbt-instruct", b"[1]"),
        ("rasbt-instruct", b"[]"),
        ("rasbt-instruct", b"[" * 100_000),
        ("self-dialogue", b"no zip"),
        ("self-dialogue", zipped({"r/corpus/a.csv": "[]"})),
        ("self-dialogue", damaged(zipped({TALKS: "[]"}), TALKS)),
    ],
    ids=lambda value: repr(value[:6]),
)
def test_a_file_of_another_form_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / DATASETS[name].origins[0].file_name
    file.write_bytes(content)
    said = refused(name, tmp_path)
    assert f"dataset {name}: {file} does not have the expected format" in said and "\n" not in said


def test_another_page_in_place_of_a_download_is_forgotten_with_its_file(
    server: str, tmp_path: Path, home: Path
) -> None:
    """As a network that wants a login first sends one for every address."""
    [published] = tmp_path.glob("site/o/r/*")
    content = published.read_text()
    published.write_text("<html>Sign in")
    assert f"{home / 'o.r.train.jsonl'} does not have the expected format" in refused("gsm8k")
    (home / "o.r.train.jsonl").unlink()
    published.write_text(content)
    assert len(list(read_dataset("gsm8k"))) == 4


def test_mistakes_are_named_before_anything_is_read(tmp_path: Path) -> None:
    assert "did you mean 'jokes'" in refused("joke")
    assert "is not a folder" in refused("jokes", tmp_path / "absent")
    with pytest.raises(UserError):
        read_dataset("joke")  # not only when it is iterated over


def test_the_table_says_where_each_is(
    mirror: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (mirror / "chat.jsonl.gz").unlink()
    (mirror / GSM8K).write_text(question(1))
    (mirror / DATASETS["aggmgpt"].origins[0].file_name).write_text("")
    assert main(["datasets", "--data-dir", str(mirror)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(DATASETS) < set(lines)
    for name, state in {
        "stories": "yes          prepared",
        "gsm8k": "downloaded",
        "aggmgpt": "partly downloaded",
        "dolly": "yes          to download",
    }.items():
        assert " ".join(state.split()) in " ".join(lines[name].split()), name
