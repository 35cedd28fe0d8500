"""Shared by the tests: a tiny model, trained and exported once, by the real commands."""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch

from app import LAUNCH, build_page
from export.__main__ import main as export_main
from export.folder import write_model
from gptcore.bundle import write_facts
from gptcore.config import ModelConfig
from gptcore.files import new_folder
from gptcore.nn import build_model
from gptcore.onnx_session import OnnxModel, load_model
from gptcore.tokenizer import Tokenizer
from training.__main__ import main as training_main
from training.dialogues import dialogues
from training.run import Run


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are many times faster on one thread while other processes run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
        "warmup_steps": 5,
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


@pytest.fixture(scope="session")
def slow_model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    """An untrained chat model of 34M parameters: at temperature 0 it never ends a reply, and
    its context takes many seconds to fill, so that there is something to stop."""
    config = ModelConfig(
        vocab_size=512, block_size=2048, n_layer=2, n_head=8, n_kv_head=8, n_embd=1024,
        n_inner=4096, tied_embeddings=False,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("models") / "slow"
    return export_untrained(config, tokenizer, folder, is_chat=True)


def export_untrained(
    config: ModelConfig, tokenizer: Tokenizer, path: Path, is_chat: bool
) -> OnnxModel:
    torch.manual_seed(0)
    network = build_model(config)
    if not config.tied_embeddings:
        with torch.no_grad():
            network.head.weight[-6:] = 0.0  # special tokens are never the likeliest
    with new_folder(path) as folder:
        write_model(network, tokenizer, is_chat, folder)
        facts = {"name": path.name, "chat": is_chat, "parameters": 0, "config": config.to_dict()}
        write_facts(folder, facts)
    return load_model(path, threads=1)


@pytest.fixture(scope="session")
def base_model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    """An untrained model that was not made for conversations."""
    config = ModelConfig(vocab_size=512, block_size=64, n_layer=1, n_embd=32, n_inner=64)
    return export_untrained(config, tokenizer, tmp_path_factory.mktemp("models") / "base", False)


@pytest.fixture
def serve() -> Iterator[Callable[[OnnxModel], str]]:
    """Serves the page of a model; the address."""
    pages = []

    def start(model: OnnxModel) -> str:
        page = build_page(model)
        pages.append(page)
        _, url, _ = page.launch(prevent_thread_lock=True, **LAUNCH)
        return url

    yield start
    for page in pages:
        page.close()
