"""A shipped folder without fp32: a training goes on from the weights of its 8-bit file."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from conftest import ROOT
from onnx import numpy_helper

from gptcore.bundle import INDEX, VARIANTS, WEIGHTS, read_facts, write_facts
from gptcore.checks import UserError
from gptcore.model import load_model
from gptcore.nn.checkpoint import model_of
from gptcore.nn.gpt import whole_sequence
from training.run.base import open_base
from training.run.quantized import MATRICES, read_quantized

SHIPPED = ROOT / "models" / "default"


@pytest.fixture(scope="module", params=["shipped", "exported now"])
def stripped(
    request: pytest.FixtureRequest, all_variants: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The model that ships, and one with scales in half precision, as an export writes them."""
    if request.param == "shipped":
        return SHIPPED
    folder = tmp_path_factory.mktemp("stripped") / "model"
    shutil.copytree(all_variants, folder, ignore=shutil.ignore_patterns(WEIGHTS))
    write_facts(folder, read_facts(folder))  # as a shipped folder, it does not list them
    return folder


def test_the_weights_are_those_of_the_file(stripped: Path) -> None:
    model = load_model(stripped, variant="q8")
    weights, _ = open_base(stripped)
    network = model_of(model.config, weights, stripped).eval()
    ids = np.random.default_rng(3).integers(0, model.config.vocab_size, 60)
    with torch.inference_mode():
        ours = network(**whole_sequence(torch.from_numpy(ids)[None]))[0][0].numpy()
    theirs = model.session().slots.read(0, ids.tolist(), first=0)
    # ONNX Runtime rounds the activations to 8 bits, too.
    assert np.abs(ours - theirs).max() < 0.5
    assert (ours.argmax(-1) == theirs.argmax(-1)).mean() > 0.9


def test_every_matrix_is_the_files_integers_times_its_scales(stripped: Path) -> None:
    weights, _ = open_base(stripped)
    n_layer = read_facts(stripped).config.n_layer
    names = [f"blocks.{i}.{name}.weight" for i in range(n_layer) for name in MATRICES]
    graph = onnx.load(stripped / VARIANTS["q8"]).graph
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


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (VARIANTS["q8"], b"!", "is damaged or changed"),
        (INDEX, b"{}", "keeps its weights in several files"),
        ("onnx", None, "has no weights to go on from"),
    ],
)
def test_weights_that_cannot_be_read_whole_are_refused(
    stripped: Path, tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    folder = shutil.copytree(stripped, tmp_path / "model")
    if content is None:
        shutil.rmtree(folder / name)
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        open_base(folder)


def test_a_head_of_its_own_is_refused_by_the_name_of_the_setting() -> None:
    config = replace(read_facts(SHIPPED).config, tied_embeddings=False)
    with pytest.raises(UserError, match=r"tied_embeddings=false, .*: name a folder with model"):
        read_quantized(SHIPPED / VARIANTS["q8"], config)
