"""Fixtures that need torch: tiny models, trained and exported once, by the real commands."""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from conftest import TINY
from torch import Tensor
from torch.nn import Module

from export.__main__ import main as export_main
from export.folder.write import write_model
from export.formats.serving import write_serving
from export.quantize.save import FORMATS
from gptcore.bundle import ONNX, SERVING, Bundle, load_bundle, read_facts, write_facts
from gptcore.config import ModelConfig
from gptcore.engine.onnx_session import open_inference
from gptcore.facts import ModelFacts
from gptcore.model import OnnxModel, load_model
from gptcore.nn import build_model
from gptcore.nn.checkpoint import Checkpoint, first_sound
from gptcore.system.files import list_checkpoints, locked, new_folder
from gptcore.text.tokenizer import Tokenizer
from gptcore.translation.onnx import OnnxTranslator, load_translator
from training.__main__ import main as training_main
from training.dialogues.generator import dialogues
from training.run.directory import Run

hypothesis.settings.register_profile("unhurried", deadline=None)  # the machine may be busy
hypothesis.settings.load_profile("unhurried")

# The model of a recipe that trains within seconds.
RECIPE_MODEL = """
[model]
vocab_size = 300
block_size = 64
n_layer = 1
n_head = 2
n_kv_head = 1
n_embd = 32
n_inner = 64
"""
# A test that needs one of these is slow: PyTorch's exporter takes up to ten seconds for a graph.
SLOW_FIXTURES = {
    "all_variants",
    "browser",
    "deep",
    "imported",
    "inspectable",
    "large",
    "slow_model",
    "translation_folder",
}

LONG_FILES = {
    "test_clients.py",
    "test_view.py",
    "test_view_kept.py",
    "test_view_rooms.py",
    "test_view_train.py",
    "test_view_train_choices.py",
}


@pytest.hookimpl(tryfirst=True)  # before the tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    # Files of a minute and more begin first: at the end the other processes would wait for one.
    items.sort(key=lambda item: item.path.name not in LONG_FILES)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are many times faster on one thread while other processes run.

    So they are in the processes that the tests start.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first of the test processes fills, for all of them."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    path = base / name
    with locked(base / f"{path.name}.lock"):
        if not path.exists():
            make(path)
    return path


@pytest.fixture(scope="session")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .jsonl of 250 made-up conversations."""

    def make(out: Path) -> None:
        lines = [json.dumps({"messages": messages}) for messages in islice(dialogues(5), 250)]
        out.write_text("\n".join(lines), "utf-8")

    return once(tmp_path_factory, "chats.jsonl", make)


@pytest.fixture(scope="session")
def tokenizer(chats: Path) -> Tokenizer:
    """512 tokens, trained on the conversations."""
    texts = (json.loads(line)["messages"] for line in chats.read_text().splitlines())
    return Tokenizer.train((m["content"] for messages in texts for m in messages), 512)


@pytest.fixture(scope="session")
def run(chats: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run directory of the `tiny` preset after 40 steps."""
    options = ["--preset", "tiny"]
    options += set_options(
        steps=40, batch_size=8, micro_batch_size=4, learning_rate=0.01, warmup_steps=5,
        eval_every=20, save_every=20,
    )  # fmt: skip

    def make(out: Path) -> None:
        assert training_main([str(chats), "--out", str(out), *options]) == 0

    return Run.load(once(tmp_path_factory, "run-tiny", make))


@pytest.fixture(scope="session")
def model_folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported and verified model folder of that run."""
    return once(tmp_path_factory, "tiny", lambda out: exported(run, out))


@pytest.fixture(scope="session")
def all_variants(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with every smaller file, by the real command; none is left out as much worse."""
    options = ["--quantize", ",".join(FORMATS)]

    def make(out: Path) -> None:
        assert export_main([str(run.path), "--out", str(out), *options]) == 0

    return once(tmp_path_factory, "variants", make)


@pytest.fixture(scope="session")
def inspectable(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with its inspecting graphs, which the command wrote."""

    def make(out: Path) -> None:
        shutil.copytree(model_folder, out)
        assert export_main(["inspect", str(out)]) == 0

    return once(tmp_path_factory, "seen", make)


def exported(run: Run, out: Path) -> None:
    assert export_main([str(run.path), "--out", str(out)]) == 0


@pytest.fixture(scope="session")
def model(model_folder: Path) -> OnnxModel:
    return load_model(model_folder, threads=1)


class Interrupted:
    """A task of a training that somebody stops by Ctrl-C in its n-th step."""

    def __init__(self, task: Any, n: int):
        self.task, self.n_left = task, n

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    @property
    def logits(self) -> Callable[..., Tensor]:
        """What each step asks for once."""
        self.n_left -= 1
        if self.n_left == 0:
            signal.raise_signal(signal.SIGINT)
        return self.task.logits


def open_graph(bundle: Bundle, graph: str) -> OnnxModel:
    """A model in fp32 with its "serving" graph, or with the "portable" one of every folder."""
    paths = bundle.serving if graph == "serving" else bundle.variants
    return OnnxModel(bundle, open_inference(paths["fp32"], "cpu", threads=1), 1, "fp32")


# A made-up language: the verb first, then the animal, its colour, and how many there are.
VERBS = {"run": "跑", "sleep": "睡觉", "sing": "唱", "jump": "跳"}
ANIMALS = {
    "cats": "猫",
    "dogs": "狗",
    "horses": "马",
    "birds": "鸟儿",
    "fish": "鱼",
    "mice": "老鼠",
}
COLOURS = {"red": "红", "blue": "蓝", "green": "绿", "white": "白", "black": "黑", "grey": "灰"}
NUMBERS = {"two": "二", "three": "三", "four": "四", "five": "五", "six": "六", "seven": "七"}


def newest_checkpoint(checkpoints: Path) -> tuple[Checkpoint, list[str]]:
    """The newest sound checkpoint, and what is wrong with newer ones."""
    return first_sound(list_checkpoints(checkpoints), checkpoints)


def made_up_pairs(n: int) -> list[tuple[str, str]]:
    """n different pairs, the made-up language first."""
    words = list(product(NUMBERS, COLOURS, ANIMALS, VERBS))
    return [
        (
            f"{VERBS[verb]}{ANIMALS[animal]}{COLOURS[colour]}{NUMBERS[number]}。",
            f"{number.capitalize()} {colour} {animal} {verb}.",
        )
        for number, colour, animal, verb in random.Random(0).sample(words, n)
    ]


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .tsv of 600 pairs."""
    text = "".join(f"{a}\t{b}\n" for a, b in made_up_pairs(600))
    return once(tmp_path_factory, "pairs.tsv", lambda path: path.write_text(text, "utf-8"))


TINY_TRANSLATOR = {
    "source_vocab_size": 320,
    "vocab_size": 320,
    "block_size": 32,
    "n_encoder_layer": 1,
    "n_layer": 2,
    "n_kv_head": 2,
    "n_embd": 64,
    "n_inner": 96,
    "batch_size": 32,
    "micro_batch_size": 32,
}


def set_options(**settings: object) -> list[str]:
    return [f"--set={key}={value}" for key, value in settings.items()]


# Settings of a training of seconds.
QUICK = {
    "n_layer": 1,
    "block_size": 64,
    "batch_size": 4,
    "micro_batch_size": 2,
    "dtype": "float32",  # else each process takes what is faster just then
    "log_every": 1,
}


def quick_words(text: Path, out: Path, **settings: object) -> list[str]:
    """What follows `python -m training`."""
    return [str(text), "--preset", "tiny", "--out", str(out), *set_options(**QUICK | settings)]


@pytest.fixture(scope="session")
def translation_run(pairs_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has learned most of the made-up language; its heads are in groups of two."""
    settings = {"steps": 160, "eval_every": 80, "warmup_steps": 10, "log_every": 20}
    options = set_options(**TINY_TRANSLATOR, **settings, dropout=0, dtype="float32")

    def make(out: Path) -> None:
        assert training_main(["translate", str(pairs_file), "--out", str(out), *options]) == 0

    return Run.load(once(tmp_path_factory, "run-toy", make))


@pytest.fixture(scope="session")
def translation_folder(translation_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported and verified folder of that run."""
    return once(tmp_path_factory, "toy", lambda out: exported(translation_run, out))


@pytest.fixture(scope="session")
def translator(translation_folder: Path) -> OnnxTranslator:
    return load_translator(translation_folder, threads=1)


@pytest.fixture(scope="session")
def tiny_translator() -> OnnxTranslator:
    """One that has learned little, and is there without waiting."""
    return load_translator(TINY / "translator", threads=1)


@pytest.fixture(scope="session")
def slow_model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    """An untrained chat model of 18M parameters: at temperature 0 it never ends a reply, and
    its context takes many seconds to fill, so that there is something to stop."""
    config = ModelConfig(
        vocab_size=512, block_size=2048, n_layer=1, n_head=8, n_kv_head=8, n_embd=1024,
        n_inner=4096, tied_embeddings=False,
    )  # fmt: skip
    return untrained(tmp_path_factory, "slow", config, tokenizer, is_chat=True)


def untrained(
    factory: pytest.TempPathFactory,
    name: str,
    config: ModelConfig,
    tokenizer: Tokenizer,
    is_chat: bool,
) -> OnnxModel:
    def make(path: Path) -> None:
        export_untrained(config, tokenizer, path, is_chat)

    return load_model(once(factory, name, make), threads=1)


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
        write_serving(folder / ONNX, folder / SERVING["fp32"], config)
        write_facts(folder, ModelFacts(path.name, is_chat, parameters=0, config=config))
    return load_model(path, threads=1)


def change_vectors(network: Module) -> None:
    """Give biases and norms other values than those of a new model, which may change nothing."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 1:
                parameter += 0.3 * torch.randn_like(parameter)


def without_serving(folder: Path, out: Path) -> Path:
    """A copy of a folder whose portable graph serves, as where heads have other sizes."""
    shutil.copytree(folder, out)
    for path in load_bundle(out).serving.values():
        path.unlink()
    write_facts(out, read_facts(out))
    return out


@pytest.fixture(scope="session")
def base_model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    """An untrained model that was not made for conversations, with stretched rotary positions,
    one key/value head, a head of its own, and dropout everywhere."""
    config = ModelConfig(
        vocab_size=512, block_size=64, n_layer=1, n_head=4, n_kv_head=1, n_embd=64, n_inner=64,
        tied_embeddings=False, position="llama3_rotary", rope_theta=500.0, rope_context=32,
        rope_factor=4.0, init="xavier", dropout=0.5, attention_dropout=0.5, inner_dropout=0.5,
        embedding_dropout=0.5,
    )  # fmt: skip
    return untrained(tmp_path_factory, "base", config, tokenizer, is_chat=False)


@pytest.fixture(scope="session")
def stretched(base_model: OnnxModel) -> Path:
    """The folder of that model."""
    return base_model.bundle.path
