"""Our training loop, the plain loops of others, and plain matrix products of the same shapes.

>>> CONTENDERS["gpt2"](config, train, task, options).step(0)           # doctest: +SKIP
{'step': 5.1}
"""

import dataclasses
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptcore.config import WAYLAND, ModelConfig
from gptcore.nn import build_model
from gptcore.nn.gpt import whole_sequence
from gptcore.nn.layers import packed
from training.data.rows import IGNORED
from training.machine.devices import autocast, pick_device, pick_dtype
from training.machine.fast_attention import QUERIES
from training.machine.malloc import keep_freed_memory
from training.machine.processes import World
from training.optim.muon import alike, orthogonal
from training.run.config import TrainConfig
from training.state import build_state
from training.step import step
from training.tasks.language import LanguageModelling

Parts = dict[str, float]  # seconds of each part of a step


class Ours:
    """training.step, with its parts timed."""

    def __init__(self, config: ModelConfig, train: TrainConfig, task: LanguageModelling, options):
        self.task, self.busy, self.clock = task, options.busy, Clock(options.busy)
        self.train = dataclasses.replace(train, compile=options.compile)
        _, self.state = build_state(config, self.train, World())
        self.model = self.state.model
        self.precision = f"{self.state.dtype}, compile={options.compile}"
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
    dtype = torch.float32

    def __init__(self, config: ModelConfig, train: TrainConfig, task: LanguageModelling, options):
        self.train, self.task, self.config, self.busy = train, task, config, options.busy
        self.model = self.network = self.build(config).train()
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
        with autocast(torch.device("cpu"), self.dtype):
            logits, _ = self.network(**whole_sequence(x))
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


class GPT2Tuned(GPT2):
    """The same with what a careful person adds: bf16 where it is faster, a compiled model, memory
    that is kept."""

    def __init__(self, *settings):
        super().__init__(*settings)
        self.dtype = pick_dtype(self.train.dtype, torch.device("cpu"))
        self.precision = f"{self.dtype}, compiled"
        keep_freed_memory()
        self.network = torch.compile(self.model, dynamic=False)

    def evaluating(self):
        return autocast(torch.device("cpu"), self.dtype)


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


class Products:
    """The matrix products of our step alone, in its dtype: no activation, no loss, no update.

    layers     of each matrix the product, and those of its input's and its own gradient
    attention  scores and sums, both with their two gradients; half of the keys are skipped
    Muon       the rounds of each matrix
    """

    def __init__(self, config: ModelConfig, train: TrainConfig, task: LanguageModelling, options):
        keep_freed_memory()
        self.dtype = pick_dtype(train.dtype, pick_device())
        self.precision = f"{self.dtype}, products alone"
        self.config, self.rows, self.busy = config, train.batch_size, options.busy
        self.model = build_model(config)
        layers = [layer for layer in self.model.modules() if isinstance(layer, nn.Linear)]
        self.weights = [layer.weight.detach().to(self.dtype) for layer in layers]
        sizes = packed(self.model)
        self.parts = [  # as Muon takes them; the last one is the head
            part
            for layer, weight in zip(layers[:-1], self.weights)
            for part in weight.split(sizes.get(layer.weight, len(weight)))
        ]

    def evaluating(self):
        return torch.no_grad()

    def step(self, number: int) -> Parts:
        config, n_tokens = self.config, self.rows * self.config.block_size
        sizes = {size for weight in self.weights for size in weight.shape}
        given = {size: torch.randn(n_tokens, size, dtype=self.dtype) for size in sizes}
        heads, T = self.rows * config.n_kv_head, config.block_size
        n_queries = T * config.n_head // config.n_kv_head
        q = torch.randn(heads, n_queries, config.head_dim, dtype=self.dtype)
        k = torch.randn(heads, T, config.head_dim, dtype=self.dtype)
        clock = Clock(self.busy)
        for weight in self.weights:
            x, dy = given[weight.shape[1]], given[weight.shape[0]]
            F.linear(x, weight)
            dy @ weight
            dy.T @ x
        clock.lap("layers")
        for _ in range(config.n_layer):
            self.attention(q, k)
        clock.lap("attention")
        for some in alike(self.parts, {}):
            orthogonal(torch.stack(some))
        clock.lap("Muon")
        return clock.parts

    def attention(self, q: Tensor, k: Tensor) -> None:
        n = QUERIES * self.config.n_head // self.config.n_kv_head
        for i, part in enumerate(q.split(n, 1), 1):
            seen = k[:, : i * QUERIES]
            for _ in range(2):  # scores, and sums of values
                scores = part @ seen.transpose(1, 2)
                scores @ seen
                scores.transpose(1, 2) @ part


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


CONTENDERS: dict[str, Callable] = {
    "ours": Ours,
    "gpt2": GPT2,
    "gpt2-tuned": GPT2Tuned,
    "textbook": Textbook,
    "products": Products,
}
