"""Shared by the tests: a tiny model, trained and exported once, by the real commands."""

import json
from itertools import islice
from pathlib import Path

import pytest

from export.__main__ import main as export_main
from gptcore.onnx_session import OnnxModel, load_model
from gptcore.tokenizer import Tokenizer
from training.__main__ import main as training_main
from training.dialogues import dialogues
from training.run import Run


@pytest.fixture(scope="session")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .jsonl of 600 made-up conversations."""
    path = tmp_path_factory.mktemp("data") / "chats.jsonl"
    lines = [json.dumps({"messages": messages}) for messages in islice(dialogues(5), 600)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer(chats: Path) -> Tokenizer:
    """512 tokens, trained on the conversations."""
    texts = (json.loads(line)["messages"] for line in chats.read_text().splitlines())
    return Tokenizer.train((m["content"] for messages in texts for m in messages), 512)


@pytest.fixture(scope="session")
def run(chats: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run directory of the `tiny` preset after 40 steps."""
    out = tmp_path_factory.mktemp("runs") / "tiny"
    settings = {
        "steps": 40,
        "batch_size": 8,
        "micro_batch_size": 4,
        "learning_rate": 0.01,
        "eval_every": 20,
        "save_every": 20,
    }
    options = [word for k, v in settings.items() for word in ("--set", f"{k}={v}")]
    assert training_main([str(chats), "--out", str(out), "--preset", "tiny", *options]) == 0
    return Run.load(out)


@pytest.fixture(scope="session")
def model_folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported and verified model folder of that run."""
    out = tmp_path_factory.mktemp("models") / "tiny"
    assert export_main([str(run.path), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def model(model_folder: Path) -> OnnxModel:
    return load_model(model_folder, threads=1)
