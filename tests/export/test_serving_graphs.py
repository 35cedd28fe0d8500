"""The serving graphs that an export adds to a folder: which can have one, and all or none."""

import shutil
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from conftest import NANO, TINY
from trained import without_serving

from export.folder import serving
from export.folder.serving import write_serving_graphs
from export.formats.serving import write_serving
from export.formats.to_onnx import write_decoder
from export.verify.report import TOLERANCE, any_failed
from export.verify.serving import compare_serving
from gptcore.bundle import load_bundle
from gptcore.checks import UserError
from gptcore.config import PRESETS
from gptcore.facts import Check
from gptcore.nn import build_model


def test_what_was_compared_has_the_name_of_its_file(model_folder: Path) -> None:
    claims = [check.name for check in load_bundle(model_folder).facts.parity]
    assert "serving.onnx: prompts read in parts" in claims


def test_heads_that_onnx_runtimes_operator_cannot_rotate_have_no_serving_graph(
    tmp_path: Path,
) -> None:
    """It rotates heads of 16, 32, 48 ... dimensions alone; these have 8."""
    folder = shutil.copytree(TINY / "model", tmp_path / "model")
    assert write_serving_graphs(folder, load_bundle(folder).config, ["fp32"], TOLERANCE) == []
    assert not load_bundle(folder).serving


def test_a_graph_with_the_older_tables_of_angles_can_have_one(tmp_path: Path) -> None:
    """That of the model that ships has both halves of each row."""
    folder = without_serving(NANO, tmp_path / "model")
    bundle = load_bundle(folder)
    graph, width = onnx.load(bundle.variants["fp32"]).graph, bundle.config.head_dim
    tables = [list(t.dims) for t in graph.initializer if t.name == "position.cos"]
    assert tables == [[bundle.config.block_size, width]]
    checks = write_serving_graphs(folder, bundle.config, ["fp32"], TOLERANCE)
    assert len(checks) == 2 and not any_failed(checks)


@pytest.mark.slow
def test_a_very_long_context_has_no_table_of_scores(tmp_path: Path) -> None:
    """The plain attention would hold 256 x 4 x 131,072 of them for a part of a prompt: 537 MB."""
    config = replace(PRESETS["tiny"], n_layer=1, block_size=2**17)
    source, path = tmp_path / "model.onnx", tmp_path / "serving.onnx"
    write_decoder(build_model(config), source)
    write_serving(source, path, config)
    attention = [n for n in onnx.load(path).graph.node if n.op_type == "GroupQueryAttention"]
    assert len(attention) == 1 and len(attention[0].input) == 9
    assert not any_failed(compare_serving(source, path, config, TOLERANCE))


@pytest.mark.parametrize(
    ("graph", "source"), [("serving", "model"), ("serving_int8", "model_int8")]
)
def test_if_a_serving_graph_differs_none_is_written(
    graph: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder would hold a graph that gptcore.json does not list, as if a person had made it."""
    folder = without_serving(NANO, tmp_path / "model")
    before = {path.name for path in (folder / "onnx").iterdir()}
    bundle = load_bundle(folder)
    monkeypatch.setattr(
        serving,
        "compare_serving",
        lambda *given: [Check("made up", 1, 1e-4, 1.0 * (given[-1] == f"{graph}.onnx"))],
    )
    with pytest.raises(UserError, match=rf"{graph}\.onnx differs from {source}\.onnx"):
        write_serving_graphs(folder, bundle.config, bundle.variants, TOLERANCE)
    assert {path.name for path in (folder / "onnx").iterdir()} == before
    load_bundle(folder)
