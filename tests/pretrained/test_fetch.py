"""Models by name, from a server that speaks the Hub's API and from a mirror folder."""

import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest
from conftest import NANO, ROOT, Refused, contents
from hub_server import CHUNK, Hub
from test_pretrained import CHATML, KINDS

import training.machine.download
from export.__main__ import main
from export.pretrained.hub import SUMS, fetch_model, find_in_mirror, home
from export.pretrained.registry import MODELS
from gptcore.bundle import find_models, load_bundle, write_facts
from gptcore.checks import UserError
from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.facts import Imported
from gptcore.model import load_model
from gptcore.system.files import locked

REPO = "some/tiny"
WEIGHTS = random.Random(0).randbytes(3 * CHUNK + 999)
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}" * 999,
    "README.md": b"---\nlicense: mit\n---\n",
    "model.safetensors": WEIGHTS,
}
OTHERS = {
    "pytorch_model.bin": b"a pickle",
    "modeling_tiny.py": b"import os",
    "tokenizer.py": b"import os",
    "onnx/model.onnx": b"a graph",
    "original/model.safetensors": b"the same again",
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A Hub with one model, which this process's `huggingface_hub` talks to without a token."""
    hub = Hub()
    hub.files[REPO] = FILES | OTHERS
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(training.machine.download, "PAUSES", (0.01,))
    yield hub
    hub.stop()


def take(repo: str = REPO) -> Path:
    """Fetch a model without a look at what it is."""
    fetch_model(home() / repo, repo, lambda folder: None)
    return home() / repo


def not_taken(repo: str = REPO) -> str:
    with pytest.raises(UserError) as error:
        take(repo)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_only_what_a_model_needs_is_fetched_and_no_pickle_or_program(hub: Hub) -> None:
    found = contents(take())
    sums = found.pop(SUMS).decode()
    assert found == FILES
    assert not [p for p in hub.paths() if Path(p).name in OTHERS and "original" not in p]
    assert len(hub.paths("model.safetensors")) == 2, "the Hub's, and the place that it leads to"
    assert sorted(line.split()[1] for line in sums.splitlines()) == sorted(FILES)


def test_the_sums_are_those_of_sha256sum(hub: Hub) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=take(), check=True)


def test_what_is_there_is_not_fetched_again(hub: Hub) -> None:
    take()
    hub.asked.clear()
    take()
    assert hub.paths() == [f"/api/models/{REPO}"]


def test_another_version_replaces_what_has_changed_alone(hub: Hub) -> None:
    before = hub.commit(REPO)
    # a file that the Hub no longer has is not read, however large it is
    os.truncate(take() / "model.safetensors", 1 << 40)
    del hub.files[REPO]["model.safetensors"]
    name = "model-00001-of-00001.safetensors"
    hub.files[REPO] |= {name: b"new", "config.json": b'{"model_type": "qwen2"}'}
    hub.asked.clear()
    found = contents(take())
    assert found[name] == b"new" and b"qwen2" in found["config.json"]
    assert "model.safetensors" not in found and not hub.paths("tokenizer.json")
    assert hub.commit(REPO) != before


def test_what_was_broken_off_goes_with_the_version_that_had_it(hub: Hub) -> None:
    hub.faults = ["", "breaks", "breaks"]
    not_taken()
    assert (home() / REPO / "model.safetensors.part.version").exists()
    del hub.files[REPO]["model.safetensors"]
    hub.files[REPO]["model-00001-of-00001.safetensors"] = b"new"
    assert contents(take()).keys() == {*hub.files[REPO], SUMS} - {*OTHERS}


def test_a_model_that_another_process_fetches_is_not_waited_for(hub: Hub) -> None:
    with locked(home() / f"{REPO}.lock"):
        assert f"another process fetches {home() / REPO}: wait" in not_taken()


def test_a_broken_connection_goes_on_where_it_was(hub: Hub) -> None:
    hub.faults = ["", "breaks"]  # the tokenizer is the first large file
    assert contents(take())["model.safetensors"] == WEIGHTS
    *_, first, second = [
        span for path, span, _ in hub.asked if path == f"/{REPO}/model.safetensors"
    ]
    assert (first, second) == ("", f"bytes={CHUNK}-")


def test_the_next_command_goes_on_where_one_was_broken_off(hub: Hub) -> None:
    hub.faults = ["", "breaks", "breaks"]
    assert "cannot be fetched" in (said := not_taken()) and "try again later" in said
    assert (home() / REPO / "model.safetensors.part").stat().st_size == 2 * CHUNK
    hub.asked.clear()
    assert contents(take())["model.safetensors"] == WEIGHTS
    assert hub.asked[-1][1] == f"bytes={2 * CHUNK}-"


def test_a_model_that_would_replace_another_is_not_fetched(
    hub: Hub, refused: Refused, tmp_path: Path
) -> None:
    out = shutil.copytree(NANO, tmp_path / "out")
    said = refused(main, "fetch", REPO, "--out", out)
    assert "holds a model of another origin (gptcore nano): choose another --out" in said
    facts = load_bundle(out).facts
    write_facts(out, replace(facts, training=None, imported=Imported(REPO, measured_on="a text")))
    assert "another origin" not in refused(main, "fetch", REPO, "--out", out)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_with_another_hash_than_the_hub_states_is_not_kept(hub: Hub, name: str) -> None:
    changed = bytearray(hub.files[REPO][name])
    changed[-1] ^= 1
    hub.stated[name] = bytes(changed)
    said = not_taken()
    assert f"{name} is damaged or another file" in said and "it was deleted" in said
    assert not {name, f"{name}.part"} & set(contents(home() / REPO))


def test_weights_are_not_fetched_for_a_model_that_is_refused(hub: Hub, refused: Refused) -> None:
    hub.files[REPO]["config.json"] = b"[]"
    said = refused(main, "fetch", REPO, "--out", home() / "out")
    assert "config.json is damaged: it is not a JSON object" in said
    hub.files[REPO]["config.json"] = b'{"model_type": "mamba"}'
    said = refused(main, "fetch", REPO, "--out", home() / "out")
    assert "model_type='mamba' is not supported" in said
    assert not hub.paths("model.safetensors") and not (home() / "out").exists()


def test_a_folder_with_files_of_mine_is_refused_before_any_request(
    hub: Hub, refused: Refused, tmp_path: Path
) -> None:
    (tmp_path / "novel.txt").write_text("Call me Ishmael.")
    assert "choose another --out" in refused(main, "fetch", REPO, "--out", tmp_path)
    assert hub.asked == []


def test_a_gated_model_says_what_to_do_and_its_token_stays_with_the_hub(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated.add(REPO)
    said = not_taken()
    assert f"accept its licence at {hub.url}/{REPO}, then run `hf auth login`" in said
    assert not hub.paths(".json")
    monkeypatch.setenv("HF_TOKEN", "mine")
    take()
    tokens = {(path.count("resolve"), token) for path, _, token in hub.asked if "tokenizer" in path}
    assert tokens == {(1, "Bearer mine"), (0, "")}, "the host of large files gets no token"


@pytest.mark.parametrize(
    ("repo", "words"),
    [
        ("some/nothing", "has no such model, or it is private"),
        ("some/broken", "HTTP 500, its own words"),
        ("some/white space", "write OWNER/NAME"),
        ("../etc", "write OWNER/NAME"),
    ],
)
def test_what_the_hub_has_not_is_one_line(
    hub: Hub, refused: Refused, repo: str, words: str
) -> None:
    assert words in refused(main, "fetch", repo)
    assert not home().exists()


@pytest.mark.parametrize("page", ["<h1>Log in</h1>", "[]", "{}", '{"id": 1, "siblings": [{}]}'])
def test_another_server_than_a_hub_is_one_line(hub: Hub, refused: Refused, page: str) -> None:
    hub.page = page.encode()
    said = refused(main, "fetch", REPO)
    assert "does not answer as a Hub does" in said or "has no config.json" in said


def test_no_network_names_the_mirror_folder(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    said = refused(main, "fetch", "smollm2-135m")
    assert "cannot reach http://127.0.0.1:9" in said
    assert "a folder that has HuggingFaceTB/SmolLM2-135M-Instruct with --mirror" in said


def test_a_wrong_token_is_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "wrong")
    assert "the token is not valid: run `hf auth login`" in not_taken()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_model_without_a_needed_file_is_refused_at_once(hub: Hub, name: str) -> None:
    del hub.files[REPO][name]
    assert "pickles (.bin) are never read" in not_taken() or f"has no {name}" in not_taken()
    assert not home().exists()


def test_a_model_that_the_disk_cannot_hold_is_not_begun(hub: Hub) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 10**15

    hub.stated["model.safetensors"] = Huge(WEIGHTS)
    said = not_taken()
    assert "needs 1000000.00 GB more, and the disk has" in said and "HF_HOME" in said
    assert not hub.paths("model.safetensors")


def test_a_disk_that_takes_no_more_is_one_line_and_what_came_is_kept(hub: Hub) -> None:
    """A limit on the size of files stands for the full disk: the same error of the system's."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (CHUNK, before[1]))
    try:
        said = not_taken()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "what was fetched is kept" in said and "another disk with HF_HOME" in said
    assert contents(take())["model.safetensors"] == WEIGHTS


def test_a_misspelled_name_is_answered_with_the_nearest(refused: Refused) -> None:
    assert "did you mean 'smollm2-135m'?" in refused(main, "fetch", "smolm2-135m")


def test_the_list_has_every_model_with_its_licence_and_whether_it_was_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fetch", "--list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["name", "parameters", "licence", "download"]
    assert [row.split()[0] for row in rows] == list(MODELS)
    assert all(f" {model.good_at}" in row for row, model in zip(rows, MODELS.values()))
    said = {row.split()[0]: row for row in rows}
    assert "  yes  " in said["smollm2-135m"] and "  its family  " in said["smollm2-360m"]
    assert "  no  " in said["qwen3-0.6b"], "of this family no real weights were at hand"


def test_a_fetched_folder_is_a_mirror_and_a_damaged_copy_is_refused(
    hub: Hub, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    shutil.copytree(take(), mirror / REPO)
    assert find_in_mirror(mirror, REPO) == mirror / REPO
    weights = mirror / REPO / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(UserError, match="damaged or missing: SHA256SUMS has another hash"):
        find_in_mirror(mirror, REPO)


def test_sums_may_be_written_by_sha256sum_itself(hub: Hub, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    folder = shutil.copytree(take(), mirror / REPO)
    (folder / "notes.txt").write_text("mine")
    for words in (["--binary", "./config.json"], []):
        others = [path.name for path in folder.iterdir() if path.name not in (SUMS, "config.json")]
        words = ["sha256sum", *words, *others]
        sums = subprocess.run(words, cwd=folder, capture_output=True, check=True).stdout
        (folder / SUMS).write_bytes(sums)
        assert find_in_mirror(mirror, REPO) == folder
    (folder / SUMS).write_bytes(b"".join(ln for ln in sums.splitlines(True) if b".safe" not in ln))
    with pytest.raises(UserError, match=r"model.safetensors is not listed in SHA256SUMS"):
        find_in_mirror(mirror, REPO)


def test_a_model_of_a_mirror_goes_the_same_road(hub: Hub, refused: Refused, tmp_path: Path) -> None:
    shutil.copytree(take(), tmp_path / "mirror" / REPO)
    hub.asked.clear()
    said = refused(main, "fetch", REPO, "--mirror", tmp_path / "mirror", "--out", tmp_path / "out")
    assert said.startswith(f"error: {tmp_path / 'mirror' / REPO / 'config.json'} lacks vocab_size")
    assert hub.asked == []


def test_a_mirror_that_lacks_the_model_says_what_it_has(
    hub: Hub, refused: Refused, tmp_path: Path
) -> None:
    shutil.copytree(take(), tmp_path / "mirror" / REPO)
    said = refused(main, "fetch", "smollm2-135m", "--mirror", tmp_path / "mirror")
    assert f"no folder HuggingFaceTB/SmolLM2-135M-Instruct: it has {REPO}" in said
    said = refused(main, "fetch", REPO, "--mirror", tmp_path / "none")
    assert "it has no OWNER/NAME/config.json" in said


def test_a_mirror_without_its_large_files_says_how_to_get_them(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(take(), tmp_path / "mirror" / REPO)
    (folder / SUMS).unlink()
    find_in_mirror(tmp_path / "mirror", REPO)
    assert f"has no {SUMS}: its files are taken as they are" in capsys.readouterr().out
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    (folder / "model.safetensors").write_bytes(pointer)
    with pytest.raises(UserError, match="run `git lfs pull` there"):
        find_in_mirror(tmp_path / "mirror", REPO)


@pytest.mark.slow
def test_from_a_name_to_a_model_that_answers(hub: Hub, tmp_path: Path) -> None:
    """In a process of its own, told by its environment alone."""
    repo = MODELS["smollm2-135m"].repo
    KINDS["smollm2"](tmp_path / "tiny")
    files = contents(tmp_path / "tiny")
    content = b"message['content']"
    dropping = CHATML.encode().replace(content, content + b".split('</think>')[-1]")
    files |= OTHERS | {"README.md": FILES["README.md"], "chat_template.jinja": dropping}
    hub.files[repo] = files
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "export", "fetch", "smollm2-135m"]
    result = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert f"\nexported {repo} to models/smollm2-135m; checked against" in result.stdout
    assert "next: python app.py --model models/smollm2-135m" in result.stdout
    assert result.stdout.count("changes replies that have </think>") == 1
    model = load_model(tmp_path / "models" / "smollm2-135m", threads=1)
    *_, last = chat(model, [{"role": "user", "content": "Hello!"}], Sampling(temperature=0), 5)
    assert last.n_new >= 1 and model.bundle.name == "smollm2-135m"
    assert f"license: mit\nbase_model: {repo}" in (model.bundle.path / "README.md").read_text()
    assert find_models(tmp_path / "models")[0] == [model.bundle.path], "the picker offers it"
