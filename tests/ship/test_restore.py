"""Weights that a shipped folder was stripped of, read back from its 8-bit file."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from conftest import ROOT
from onnx import numpy_helper

from export.__main__ import main
from export.formats.restore import MATRICES
from gptcore.bundle import VARIANTS, WEIGHTS, read_facts, write_facts
from gptcore.model import load_model
from gptcore.nn.checkpoint import model_of
from gptcore.nn.gpt import whole_sequence
from training.run.base import open_base

SHIPPED = ROOT / "models" / "default"


@pytest.fixture(scope="module", params=["shipped", "exported now"])
def restored(
    request: pytest.FixtureRequest, all_variants: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The model that ships, and one with scales in half precision, as an export writes them."""
    folder = tmp_path_factory.mktemp("restored") / "model"
    shutil.copytree(SHIPPED if request.param == "shipped" else all_variants, folder)
    if request.param != "shipped":
        (folder / WEIGHTS).unlink()
        write_facts(folder, read_facts(folder))
    assert main(["restore", str(folder)]) == 0
    return folder


def test_the_restored_weights_are_those_of_the_file(restored: Path) -> None:
    model = load_model(restored, variant="q8")
    weights, _ = open_base(restored)
    network = model_of(model.config, weights, restored).eval()
    ids = np.random.default_rng(3).integers(0, model.config.vocab_size, 60)
    with torch.inference_mode():
        ours = network(**whole_sequence(torch.from_numpy(ids)[None]))[0][0].numpy()
    theirs = model.session().slots.read(0, ids.tolist(), first=0)
    # ONNX Runtime rounds the activations to 8 bits, too.
    assert np.abs(ours - theirs).max() < 0.5
    assert (ours.argmax(-1) == theirs.argmax(-1)).mean() > 0.9


def test_every_matrix_is_the_files_integers_times_its_scales(restored: Path) -> None:
    weights, _ = open_base(restored)
    n_layer = read_facts(restored).config.n_layer
    names = [f"blocks.{i}.{name}.weight" for i in range(n_layer) for name in MATRICES]
    graph = onnx.load(restored / VARIANTS["q8"]).graph
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    halves = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Cast"}
    products = [node for node in graph.node if node.op_type == "MatMulNBits"]
    for name, node in zip([*names, "embed.weight"], products, strict=True):
        integers, scales = (found[halves.get(key, key)] for key in node.input[1:])
        n_in = {attribute.name: attribute.i for attribute in node.attribute}["K"]
        n_out, n_blocks, size = integers.shape
        expected = (integers - np.float32(128)) * scales.astype(np.float32).reshape(
            n_out, n_blocks, 1
        )
        expected = expected.reshape(n_out, n_blocks * size)[:, :n_in]
        assert np.array_equal(weights[name].numpy(), expected), name


def test_what_has_its_weights_is_left_alone(restored: Path, refused: Callable[..., str]) -> None:
    assert "has its weights already" in refused(main, "restore", str(restored))


def test_a_folder_without_such_a_file_is_refused(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert "no model folder" in refused(main, "restore", str(tmp_path / "none"))
