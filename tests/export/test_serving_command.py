"""python -m export serving: what it adds to a folder, and what it refuses."""

from pathlib import Path

import pytest
from conftest import NANO, TINY, Refused
from trained import without_serving

from export.__main__ import main
from export.folder import serving as folder_serving
from export.verify.report import Check
from gptcore.bundle import SERVING, load_bundle


def test_the_command_adds_to_a_folder_what_its_export_would_have_written(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = without_serving(model_folder, tmp_path / "model")
    assert not load_bundle(folder).serving
    assert main(["serving", str(folder)]) == 0
    assert capsys.readouterr().out.count(" ok\n") == 2
    name = SERVING["fp32"]
    assert (folder / name).read_bytes() == (model_folder / name).read_bytes()
    assert load_bundle(folder).serving == {"fp32": folder / name}
    assert load_bundle(folder).facts.sha256 == load_bundle(model_folder).facts.sha256


def test_a_folder_of_an_earlier_version_can_be_served(tmp_path: Path) -> None:
    folder = without_serving(NANO, tmp_path / "model")
    assert main(["serving", str(folder)]) == 0
    bundle = load_bundle(folder)
    assert set(bundle.serving) == {*bundle.variants} & {*SERVING} >= {"fp32"}


def test_what_was_compared_has_the_name_of_its_file(model_folder: Path) -> None:
    claims = [check.name for check in load_bundle(model_folder).facts.parity]
    assert "serving.onnx: prompts read in parts" in claims


def test_what_onnx_runtimes_operator_cannot_do_is_refused_in_a_line(
    tmp_path: Path, refused: Refused
) -> None:
    """It rotates heads of 16, 32, 48 ... dimensions alone; these have 8."""
    folder = without_serving(TINY / "model", tmp_path / "model")
    assert "head_dim" in refused(main, "serving", folder)
    assert not load_bundle(folder).serving


@pytest.mark.parametrize(
    ("graph", "source"), [("serving", "model"), ("serving_int8", "model_int8")]
)
def test_if_a_serving_graph_differs_none_is_written(
    graph: str, source: str, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder would hold a graph that gptcore.json does not list, as if a person had made it."""
    folder = without_serving(NANO, tmp_path / "model")
    before = {path.name for path in (folder / "onnx").iterdir()}
    monkeypatch.setattr(
        folder_serving,
        "compare_serving",
        lambda *given: [Check("made up", 1, 1.0 * (given[-1] == f"{graph}.onnx"), 1e-4)],
    )
    assert f"{graph}.onnx differs from {source}.onnx" in refused(main, "serving", folder)
    assert {path.name for path in (folder / "onnx").iterdir()} == before
    load_bundle(folder)


def test_what_has_no_serving_graph_says_so(tmp_path: Path, refused: Refused) -> None:
    assert "no model folder" in refused(main, "serving", tmp_path / "nowhere")
