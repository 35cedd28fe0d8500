"""Other runtimes, the real ones: equal tokens are shown, and what is not shown is not claimed."""

import json
import re
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import NANO
from safetensors.torch import load_file, save_file

from benchmarks.serving.peers import main as benchmark
from export.folder.transformers_js import DTYPES
from export.runtimes import compare as runtimes
from export.runtimes import environments
from export.runtimes.compare import make_prompts, verify_runtimes
from export.runtimes.environments import NPM, PEERS, Peer, PeerError, Running, start
from export.verify.decoder import greedy
from gptcore.bundle import default_model, load_bundle, read_facts, write_facts
from gptcore.checks import UserError
from gptcore.model import OnnxModel, load_model
from gptcore.system.files import read_json

pytestmark = pytest.mark.peers

# llama.cpp is compiled when it is installed, which takes longer than all tests.
SHOWN = ["onnxruntime", "onnxruntime-genai", "transformers", "transformers.js", "onnxruntime-node"]
SHOWN += ["onnxruntime-web"]

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def no_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the environments, empty."""
    monkeypatch.setenv("GPTCORE_PEERS", str(tmp_path / "peers"))
    return tmp_path / "peers"


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of measuring the speed, which no test is about."""
    monkeypatch.setattr(runtimes, "ROUNDS", 1)


@pytest.fixture
def folder(base_model: OnnxModel) -> Path:
    return base_model.bundle.path


def hash_again(folder: Path) -> None:
    write_facts(folder, read_facts(folder))


def row(text: str, name: str) -> list[str]:
    return re.search(rf"^{re.escape(name)} +(.*)$", text, re.MULTILINE)[1].split()


def test_real_runtimes_write_our_tokens(capsys: Captured) -> None:
    code = verify_runtimes(NANO, SHOWN)
    said = capsys.readouterr().out
    for name in SHOWN:
        version, equal, ragged, speed = row(said, name)
        assert version[0].isdigit() and (equal, ragged) == ("600/600", "600/600"), said
        assert float(speed.removesuffix("x")) > 0
    assert code == 0


def test_what_the_makers_recommend_to_sample_with_changes_no_greedy_token(
    folder: Path, tmp_path: Path
) -> None:
    penalised = shutil.copytree(folder, tmp_path / "penalised")
    (penalised / "generation_config.json").write_text('{"repetition_penalty": 3.0}')
    hash_again(penalised)
    assert verify_runtimes(penalised, ["transformers", "transformers.js"]) == 0


def test_transformers_js_finds_each_number_format_by_its_name(all_variants: Path) -> None:
    for variant, dtype in DTYPES.items():
        session = load_model(all_variants, threads=1, device="cpu", variant=variant).session()
        prompt = make_prompts(load_bundle(all_variants))[0]
        assert transformers_js(all_variants, prompt, dtype) == greedy(session, prompt, 12), dtype


def test_transformers_js_needs_no_name_for_a_file_of_the_model_that_ships() -> None:
    """It has no fp32, which transformers.js would look for by itself."""
    folder = default_model()
    prompt = make_prompts(load_bundle(folder))[0]
    assert transformers_js(folder, prompt) == transformers_js(folder, prompt, "int8")


def transformers_js(folder: Path, prompt: list[int], *dtype: str) -> list[int]:
    """Return the first tokens that it writes."""
    with start("transformers.js", folder, 1, *dtype) as peer:
        return peer.ask([prompt], 12)["ids"][0]


def test_a_base_model_with_a_short_context_is_verified_too(folder: Path, capsys: Captured) -> None:
    prompts = make_prompts(load_bundle(folder))
    assert len({len(ids) for ids in prompts}) == 3 and max(map(len, prompts)) <= 32
    assert verify_runtimes(folder, ["onnxruntime", "gptcore"]) == 0
    said = capsys.readouterr().out
    n = 3 * (64 - max(map(len, prompts)))
    assert row(said, "onnxruntime")[1:3] == [f"{n}/{n}"] * 2
    assert row(said, "gptcore")[2:4] == [f"{n}/{n}", "-"]  # its version is two words


def test_weights_that_differ_are_found(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    weights = load_file(changed / "model.safetensors")
    weights["model.norm.weight"] = torch.randn_like(weights["model.norm.weight"])
    save_file(weights, changed / "model.safetensors", metadata={"format": "pt"})
    hash_again(changed)
    assert verify_runtimes(changed, ["onnxruntime", "transformers"]) == 1
    said = capsys.readouterr().out
    equal, of = map(int, row(said, "onnxruntime")[1].split("/"))
    assert equal == of
    equal, of = map(int, row(said, "transformers")[1].split("/"))
    assert equal < of
    assert re.search(r"differs from token \d+ on, where the logits .* are [\d.e-]+ apart", said)


@pytest.fixture
def changed_package(tmp_path: Path) -> Path:
    """The folder that pins a package, which is not the one whose hash is pinned."""
    folder = tmp_path / "npm"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "package.json").write_text('{"name": "a", "version": "1.0.0"}')
    with tarfile.open(folder / "a.tgz", "w:gz") as archive:
        archive.add(folder / "package", "package")
    source = f"file:{folder / 'a.tgz'}"
    package = {"version": "1.0.0", "resolved": source, "integrity": "sha512-" + 86 * "A" + "=="}
    root = {"dependencies": {"a": source}}
    lock = {"lockfileVersion": 3, "packages": {"": root, "node_modules/a": package}}
    (folder / "package.json").write_text(json.dumps(root))
    (folder / "package-lock.json").write_text(json.dumps(lock))
    return folder


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (Peer("onnxruntime.py", pip=("./nowhere",)), "python failed: .*nowhere"),
        (Peer("onnxruntime.py", npm=True), "npm failed: npm error code EINTEGRITY"),
        (Peer("no_such_program.py"), "it ended with 1: .*No module named .*no_such_program"),
        (Peer("no_such_program.mjs"), "it ended with 1: "),
    ],
)
def test_a_runtime_that_cannot_be_had_is_missing_and_not_passed(
    peer: Peer,
    reason: str,
    folder: Path,
    no_peers: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    changed_package: Path,
) -> None:
    monkeypatch.setattr(environments, "NPM", changed_package)
    monkeypatch.setitem(PEERS, "onnxruntime", peer)
    assert verify_runtimes(folder, ["onnxruntime", "gptcore"]) == 1
    said = capsys.readouterr().out
    assert re.search(f"^onnxruntime +missing: {reason}", said, re.MULTILINE), said
    assert row(said, "gptcore")[-1].endswith("x"), "the others still have their turn"


def test_without_our_own_session_nothing_is_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PEERS, "gptcore", Peer("no_such_program.py"))
    with pytest.raises(UserError, match="could not be run by gptcore itself: it ended with 1"):
        verify_runtimes(folder, ["onnxruntime"])


@pytest.mark.parametrize(
    ("program", "patience_s", "reason"),
    [
        ("import time; time.sleep(600)", 1.0, "it ended with -9: "),
        ("print('{}', flush=True)", 60.0, "it ended with 0: "),
    ],
)
def test_a_runtime_that_hangs_or_ends_between_two_questions_is_missing(
    program: str, patience_s: float, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "PATIENCE_S", patience_s)
    with pytest.raises(PeerError, match=reason):
        running = Running([sys.executable, "-c", program], tmp_path)
        try:
            running.process.wait()
            running.ask([[1]], 1)
        finally:
            running.close()


def test_a_program_that_is_not_installed_is_named(
    no_peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(PeerError, match="npm is not installed"), start("transformers.js", NANO):
        pass


def test_an_environment_is_made_once_and_again_when_its_packages_change(
    no_peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    monkeypatch.setattr(environments, "run", lambda *words: ran.append(words))
    peer = PEERS["onnxruntime-genai"]
    for _ in range(2):
        folder = environments.install("genai", peer)
        assert len(ran) == 2 and ran[1][-len(peer.pip) :] == peer.pip
    (folder / "left over").touch()
    environments.install("genai", replace(peer, pip=("numpy==2.4.5",)))
    assert len(ran) == 4 and not (folder / "left over").exists()


def test_all_packages_are_pinned() -> None:
    for peer in PEERS.values():
        assert all("==" in package for package in peer.pip)
    wanted, lock = (read_json(NPM / f"package{end}.json") for end in ("", "-lock"))
    root, *packages = lock["packages"].values()
    assert packages and all(p["integrity"].startswith("sha512-") for p in packages)
    assert root["dependencies"] == wanted["dependencies"]


def test_a_model_that_is_no_llama_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "other")
    (tmp_path / "other" / "config.json").unlink()
    hash_again(tmp_path / "other")
    with pytest.raises(UserError, match=r"has no config.json: other runtimes read only models of"):
        verify_runtimes(tmp_path / "other", ["onnxruntime"])


def test_an_unknown_runtime_is_refused() -> None:
    with pytest.raises(UserError, match="unknown runtime 'onnxruntme': did you mean"):
        verify_runtimes(NANO, ["onnxruntme"])


def test_the_benchmark_prints_a_line_for_each_contender(folder: Path, capsys: Captured) -> None:
    words = ["--rounds=1", "--steps=3", "--threads=1", "--contexts=16"]
    benchmark(["--folder", str(folder), *words, "--runtimes", "gptcore", "onnxruntime"])
    said = capsys.readouterr().out
    assert row(said, "gptcore")[-1] == "1.00x" and row(said, "onnxruntime")[-1].endswith("x")
