"""The folder for a Hugging Face Space: started as a Space starts it, and what it holds."""

import re
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import NANO, ROOT, Refused

from benchmarks.crowds.servers import free_port
from benchmarks.export.spaces import connected, started
from export.__main__ import main
from export.ship.space import SDKS
from export.ship.web import card
from gptcore.bundle import load_bundle, load_translation_bundle, read_facts, write_facts
from gptcore.gradio.launch import declare_gpu_function
from gptcore.page.facts import examples_of
from gptcore.system.files import files_in

DEFAULT = ROOT / "models" / "default"


@pytest.fixture(scope="module")
def space(translation_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Space with both kinds of models."""
    out = tmp_path_factory.mktemp("spaces") / "space"
    words = ["space", DEFAULT, "--out", out, "--translate", translation_folder]
    assert main([str(word) for word in words]) == 0
    return out


@pytest.mark.slow
@pytest.mark.parametrize("sdk", SDKS)
def test_a_space_starts_as_the_hub_starts_it_and_answers_its_examples(
    space: Path, tmp_path: Path, sdk: str
) -> None:
    """As user 1000 who may write to nothing but the home, where the tests may choose the user."""
    if sdk == "docker":
        space = tmp_path / "space"
        assert main(["space", str(DEFAULT), "--out", str(space), "--sdk", sdk]) == 0
    before, port = set(files_in(space)), str(free_port())
    with started(space, sys.executable, port) as process:
        client = connected(process, port)
        for example in examples_of(read_facts(DEFAULT)):
            assert client.predict(example, temperature=0, api_name="/chat")
        if sdk == "gradio":
            assert client.predict("跑猫红二。", api_name="/translate")
    assert set(files_in(space)) == before


def test_it_holds_what_the_page_reads_and_nothing_else(space: Path) -> None:
    assert set(files_in(space / "models" / "default")) == {
        "gptcore.json", "tokenizer.tiktoken", "onnx/inspect.onnx", "onnx/serving_int8.onnx",
        "onnx/model_quantized.onnx", "onnx/model_int8.onnx", "onnx/untrained.onnx",
    }  # fmt: skip
    assert load_bundle(space / "models" / "default").facts.parity
    assert load_translation_bundle(space / "models" / "translate").source_tokenizer
    found = set(files_in(space))
    assert {"app.py", "LICENSE"} <= found
    assert {"gptcore/gradio/endpoints.py", "gptcore/engine/generate.py"} <= found
    unwanted = re.compile(r"/nn/|__pycache__|safetensors|^(training|export|tests)/")
    assert not [name for name in found if unwanted.search(name) and ".pyc" not in name]


def test_the_hub_is_told_which_gradio_and_that_is_the_one_of_the_requirements(space: Path) -> None:
    front_matter = (space / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    facts = dict(line.split(": ", 1) for line in front_matter.splitlines())
    assert facts["sdk"] == "gradio"
    assert facts["sdk_version"] == version("gradio")
    assert facts["title"] == '"gptcore chat"'
    assert facts["python_version"] == '"3.12"', "without quotes YAML could read a number"
    assert len(facts["short_description"]) <= 60, "the Hub refuses a longer one"
    assert (space / facts["app_file"]).is_file()
    ours = (ROOT / "requirements.txt").read_text().splitlines()
    theirs = (space / "requirements.txt").read_text().splitlines()
    changed = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    assert [b for _, b in changed] == [f"gradio=={version('gradio')}"]


def test_the_readme_has_the_terms_of_the_models_licence(tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "space"
    terms = "license: other\nlicense_name: theirs\nlicense_link: https://theirs.example/LICENSE\n"
    shutil.copytree(NANO, model)
    (model / "README.md").write_text(f"---\n{terms}---\n")
    write_facts(model, read_facts(model))
    assert main(["space", str(model), "--out", str(out)]) == 0
    assert terms in (out / "README.md").read_text(encoding="utf-8")
    assert terms in card(load_bundle(model)), "of a static page"
    assert main(["space", str(model), "--out", str(out), "--license", "mit"]) == 0
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert "license: mit\n" in readme and "theirs" not in readme


def test_the_hub_is_told_what_a_docker_space_listens_on(tmp_path: Path) -> None:
    out = tmp_path / "space"
    assert main(["space", str(DEFAULT), "--out", str(out), "--sdk", "docker"]) == 0
    front_matter = (out / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    assert "sdk: docker\napp_port: 7860\n" in front_matter
    dockerfile = (out / "Dockerfile").read_text(encoding="utf-8")
    assert "USER user" in dockerfile and "EXPOSE 7860" in dockerfile
    assert dockerfile.index("pip install") < dockerfile.index("COPY . ."), "installs are kept"


def test_large_files_go_to_lfs(space: Path) -> None:
    patterns = [line.split()[0] for line in (space / ".gitattributes").read_text().splitlines()]
    large = [path for path in space.rglob("*") if path.is_file() and path.stat().st_size > 1e6]
    assert large and all(any(path.match(pattern) for pattern in patterns) for path in large)


@pytest.mark.parametrize("command", [["space"], []], ids=str)
def test_a_licence_that_the_hub_cannot_read_is_refused(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*command, str(NANO), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--license", 'CC BY: 4.0 "x"'])
    assert "is no name of the Hub's, such as mit" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_space_is_written_again_but_nothing_of_yours_is_deleted(
    tmp_path: Path, refused: Refused
) -> None:
    out = tmp_path / "space"
    words = ["space", DEFAULT, "--out", out]
    for _ in range(2):
        assert main([str(word) for word in words]) == 0
    (out / "notes.txt").write_text("mine")
    assert "notes.txt" in refused(main, *words)
    (out / "notes.txt").unlink()
    (out / "gptcore" / "mine.py").write_text("mine")
    assert "files of yours (gptcore/mine.py)" in refused(main, *words)
    (out / "gptcore" / "mine.py").unlink()
    (out / "gptcore" / "__pycache__").mkdir()
    (out / "gptcore" / "__pycache__" / "bundle.pyc").write_text("left by a start")
    needed = (out / "requirements.txt").read_text()
    (out / "requirements.txt").write_text(needed + "onnxruntime-gpu\n")
    assert "requirements.txt was edited since this program wrote it" in refused(main, *words)
    (out / "requirements.txt").unlink()
    assert main([str(word) for word in words]) == 0
    assert (out / "requirements.txt").read_text() == needed
    (out / "files.json").unlink()  # as a Space of an earlier version
    assert main([str(word) for word in words]) == 0 and (out / "files.json").is_file()
    (out / ".git").mkdir()
    (out / ".git" / "HEAD").write_text("mine")
    assert "HEAD" in refused(main, *words)
    (tmp_path / "app.py").write_text("mine")
    assert "is not a Space" in refused(main, "space", DEFAULT, "--out", tmp_path)
    assert "translation model" in refused(main, *words, "--translate", DEFAULT)


def test_zero_gpu_finds_a_function_where_its_package_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=found.append))
    declare_gpu_function()
    assert len(found) == 1 and callable(found[0])
    monkeypatch.setitem(sys.modules, "spaces", None)  # as if it were not installed
    declare_gpu_function()
    assert len(found) == 1
