"""Training speed: our loop against two plain loops of the same size, interleaved in one run.

    python benchmarks/train.py [--text FILE ...] [--rounds 7] [--profile]
    python benchmarks/train.py --race --steps 600 --our-steps 130 [--text FILE ...]

ours      training.step, which `python -m training` also uses
gpt2      transformers' GPT2LMHeadModel in fp32, AdamW with PyTorch's defaults, clipping
textbook  the `wayland` kind of decoder in fp32, AdamW, batches cut anywhere from the text

Layers, width, heads, context and vocabulary are those of --preset for all. Each contender has
a process of its own, since what our loop asks of malloc would speed up the others too; only
one works at a time. A step is batch, forward, backward, clipping and update; speeds are of
medians over the rounds. --race trains gpt2 for --steps and ours for --our-steps with the same
tokens a step, both through their whole schedule of learning rates, and compares the time spent
in steps and the bits per byte of the same held-out text.
"""

import argparse
import dataclasses
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from gptcore.config import PRESETS, WAYLAND, ModelConfig
from gptcore.nn import build_model, count_parameters
from gptcore.nn.gpt import whole_sequence
from training.data.batches import IGNORED
from training.data.shards import load_shards, prepare
from training.data.sources import open_corpus
from training.evaluation.validation import evaluate
from training.machine.devices import autocast, keep_freed_memory, pick_device, pick_dtype
from training.machine.processes import World
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import RunData
from training.state import build_state
from training.step import step
from training.tasks.language import LanguageModelling

Parts = dict[str, float]  # seconds of each part of a step
RATES = {"ours": 6e-3, "gpt2": 1e-3, "textbook": 1e-3}


def main() -> None:
    options = parse()
    sizes = {"block_size": options.context, "vocab_size": options.vocabulary}
    config = dataclasses.replace(PRESETS[options.preset], **sizes)
    with tempfile.TemporaryDirectory() as folder:
        corpus, source = open_corpus(options.text, seed=1)
        work = options.shards or Path(folder)
        shards = prepare(corpus, work, config.vocab_size)
        config = dataclasses.replace(config, vocab_size=shards.tokenizer.vocab_size)
        settings = (config, shards.path, options)
        print(f"{source}; {options.batch} x {options.context} tokens a step", flush=True)
        names = ["ours", "gpt2"] if options.race else ["ours", "gpt2", "textbook"]
        workers = {name: start(name, *settings) for name in names}
        for name, pipe in workers.items():
            print(f"{name:10}{pipe.recv()}", flush=True)
        race(workers, options) if options.race else speeds(workers, options)
        for pipe in workers.values():
            pipe.send("end")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="*", type=Path, default=[], help="default: own dialogues")
    parser.add_argument("--shards", type=Path, help="keep the token shards here")
    parser.add_argument("--preset", default="small", choices=("tiny", "nano", "small", "base"))
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=32, help="rows per step")
    parser.add_argument(
        "--plain-batch", type=int, help="rows per step of the plain loops (--batch)"
    )
    parser.add_argument(
        "--micro-batch", type=int, default=32, help="rows per micro-batch, ours only"
    )
    parser.add_argument("--compile", default="on", choices=("on", "off"), help="ours only")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--profile", action="store_true", help="print the slowest operators of our step"
    )
    parser.add_argument("--race", action="store_true")
    parser.add_argument(
        "--busy",
        action="store_true",
        help="other work runs here: one thread each, and CPU time instead of the clock's",
    )
    parser.add_argument("--steps", type=int, default=600, help="steps of gpt2 in the race")
    parser.add_argument("--our-steps", type=int, default=130, help="steps of ours in the race")
    for name, rate in RATES.items():
        parser.add_argument(f"--{name}-rate", type=float, default=rate, help="learning rate")
    options = parser.parse_args()
    options.threads = 1 if options.busy else options.threads
    options.plain_batch = options.plain_batch or options.batch
    return options


def speeds(workers: dict[str, Connection], options: argparse.Namespace) -> None:
    seen: dict[str, list[Parts]] = {name: [] for name in workers}
    for number in range(options.rounds + 1):
        for name, pipe in workers.items():
            parts = ask(pipe, "step")
            seen[name] += [parts] if number else []  # the first step allocates and compiles
    steps = {n: statistics.median(sum(p.values()) for p in parts) for n, parts in seen.items()}
    tokens = {name: rows_of(name, options) * options.context for name in steps}
    fastest = tokens["ours"] / steps["ours"]
    print(f"\n{'':10}{'tokens/s':>10}{'s/step':>9}{'ours is faster by':>20}")
    for name, seconds in steps.items():
        speed = tokens[name] / seconds
        print(f"{name:10}{speed:10.0f}{seconds:9.3f}{fastest / speed:19.2f}x")
    print("\nshares of our step, medians:")
    for part in seen["ours"][0]:
        seconds = statistics.median(parts[part] for parts in seen["ours"])
        print(f"{part:24}{seconds:8.3f} s{seconds / steps['ours']:8.1%}")
    if options.profile:
        print(ask(workers["ours"], "profile"))


def rows_of(name: str, options: argparse.Namespace) -> int:
    """Return the number of rows in a contender's step."""
    return options.batch if name == "ours" else options.plain_batch


def race(workers: dict[str, Connection], options: argparse.Namespace) -> None:
    """Ours and gpt2 reach the same share of their steps at the same time, so that whatever else
    the machine does meets both."""
    wanted = {"ours": options.our_steps, "gpt2": options.steps}
    taken, seconds = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0.0)
    for _ in tqdm(range(sum(wanted.values()))):
        name = min(wanted, key=lambda name: (taken[name] + 1) / wanted[name])
        parts = ask(workers[name], "step")
        seconds[name] += sum(parts.values()) if taken[name] else 0.0  # the first one compiles
        taken[name] += 1
    print(f"\n{'':10}{'steps':>8}{'seconds':>10}{'bits per byte':>15}")
    for name, pipe in workers.items():
        print(f"{name:10}{wanted[name]:8}{seconds[name]:10.1f}{ask(pipe, 'evaluate'):15.4f}")
    print(f"time of ours / gpt2: 1 / {seconds['gpt2'] / seconds['ours']:.1f}")


def start(name: str, *settings: object) -> Connection:
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(
        target=serve, args=(theirs, name, *settings), daemon=True
    )
    process.start()
    theirs.close()
    return ours


def ask(pipe: Connection, request: str):
    pipe.send(request)
    return pipe.recv()


def serve(pipe: Connection, name: str, config: ModelConfig, shards: Path, options) -> None:
    """Build a contender and answer requests; the main function of its process."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    steps = options.our_steps if name == "ours" else options.steps
    rows = rows_of(name, options)
    train = TrainConfig(
        steps=steps,
        batch_size=rows,
        micro_batch_size=min(options.micro_batch, rows),
        learning_rate=getattr(options, f"{name}_rate"),
        warmup_steps=max(1, steps // 20),
        decay_share=0.8,
    )
    task = LanguageModelling(Run(Path(), config, train, RunData("", False, 0)), load_shards(shards))
    contender = CONTENDERS[name](config, train, task, options)
    parameters = count_parameters(contender.model)
    pipe.send(f"{parameters:,} parameters, {contender.precision}, rate {train.learning_rate}")
    number = 0
    while (request := pipe.recv()) != "end":
        if request == "step":
            pipe.send(contender.step(number % steps))
            number += 1
        elif request == "evaluate":
            with contender.evaluating():
                pipe.send(evaluate(contender.model, task.val_rows, 8).bits_per_byte)
        else:
            with torch.profiler.profile() as profile:
                contender.step(number % steps)
            table = profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=15)
            pipe.send(table)


class Ours:
    """training.step, with its parts timed."""

    def __init__(self, config: ModelConfig, train: TrainConfig, task: LanguageModelling, options):
        self.task, self.busy, self.clock = task, options.busy, Clock(options.busy)
        self.train = dataclasses.replace(train, compile=options.compile)
        device = pick_device()
        dtype = pick_dtype(train.dtype, device)
        keep_freed_memory()
        self.state = build_state(Run(Path(), config, self.train, {}), World(), device, dtype)
        self.model = self.state.model
        self.precision = f"{dtype}, compile={options.compile}"
        for parameter in self.model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda _: self.clock.lap("backward"))
        first, *others = self.state.optimizers
        first.register_step_pre_hook(lambda *_: self.clock.lap("clip"))
        for optimizer in (first, *others):
            name = type(optimizer).__name__
            optimizer.register_step_post_hook(lambda *_, name=name: self.clock.lap(name))

    def evaluating(self):
        return autocast(self.state.device, self.state.dtype)

    def step(self, number: int) -> Parts:
        self.clock, self.state.step = Clock(self.busy), number
        batch = self.task.batch(number)
        self.clock.lap("batch")
        step(self.state, batch, self.logits, self.train)
        return self.clock.parts

    def logits(self, model: nn.Module, x: Tensor) -> Tensor:
        self.clock.lap("backward")  # of the part before; of the first part next to nothing
        result = self.task.logits(model, x)
        self.clock.lap("forward")
        result.register_hook(lambda gradient: self.clock.lap("loss, both ways"))
        return result


class Plain:
    """The usual loop of tutorials: fp32, eager, AdamW."""

    precision = "torch.float32, eager"

    def __init__(self, config: ModelConfig, train: TrainConfig, task: LanguageModelling, options):
        self.train, self.task, self.config, self.busy = train, task, config, options.busy
        self.model = self.build(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=train.learning_rate)

    def evaluating(self):
        return torch.no_grad()

    def rate(self, step: int) -> float:
        """Return the learning rate: linear warm-up, then a cosine decay to a tenth."""
        warmup = self.train.warmup_steps
        done = max(0, step - warmup) / max(1, self.train.steps - warmup)
        return min((step + 1) / warmup, 0.55 + 0.45 * math.cos(math.pi * done))

    def step(self, number: int) -> Parts:
        clock = Clock(self.busy)
        for group in self.optimizer.param_groups:
            group["lr"] = self.train.learning_rate * self.rate(number)
        x, y = self.batch(number)
        logits, _ = self.model(**whole_sequence(x))
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=IGNORED)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        loss.item()
        clock.lap("step")
        return clock.parts


class GPT2(Plain):
    def build(self, config: ModelConfig) -> nn.Module:
        return HuggingFaceGPT2(config)

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        return self.task.batch(number)


class Textbook(Plain):
    def build(self, config: ModelConfig) -> nn.Module:
        same = ("vocab_size", "block_size", "n_layer", "n_head", "n_embd")
        sizes = {name: getattr(config, name) for name in same}
        inner = {"n_kv_head": config.n_head, "n_inner": 4 * config.n_embd}
        drops = {"dropout": 0.0, "attention_dropout": 0.0}
        shard = self.task.train_rows.split[0]
        self.ids = torch.from_numpy(shard[: len(shard)].astype("int64"))
        return build_model(dataclasses.replace(WAYLAND, **sizes, **inner, **drops))

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        T = self.config.block_size
        starts = torch.randint(0, len(self.ids) - T, (self.train.batch_size,))
        rows = torch.stack([self.ids[start : start + T + 1] for start in starts])
        return rows[:, :-1], rows[:, 1:]


class HuggingFaceGPT2(nn.Module):
    """GPT2LMHeadModel with the interface of our model."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel
        from transformers.utils import logging

        logging.set_verbosity_error()
        no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        self.gpt2 = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=config.vocab_size,
                n_positions=config.block_size,
                n_embd=config.n_embd,
                n_layer=config.n_layer,
                n_head=config.n_head,
                **no_dropout,
            )
        )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor
    ) -> tuple[Tensor, None]:
        return self.gpt2(input_ids, use_cache=False).logits, None


class Clock:
    """Sums the seconds between laps by name."""

    def __init__(self, busy: bool) -> None:
        self.parts: Parts = {}
        # With several threads CPU time would count their waiting for each other.
        self.now = time.process_time if busy else time.perf_counter
        self.last = self.now()

    def lap(self, name: str) -> None:
        now = self.now()
        self.parts[name] = self.parts.get(name, 0.0) + now - self.last
        self.last = now


CONTENDERS: dict[str, Callable] = {"ours": Ours, "gpt2": GPT2, "textbook": Textbook}

if __name__ == "__main__":
    main()
