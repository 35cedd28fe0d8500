"""Weights that a shipped folder was stripped of, read back from its 8-bit file."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT

from export.__main__ import main
from gptcore.bundle import WEIGHTS, read_facts, write_facts
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


def test_what_has_its_weights_is_left_alone(restored: Path, refused: Callable[..., str]) -> None:
    assert "has its weights already" in refused(main, "restore", str(restored))


def test_a_folder_without_such_a_file_is_refused(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert "no model folder" in refused(main, "restore", str(tmp_path / "none"))
