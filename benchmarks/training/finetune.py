"""Fine-tuning with LoRA: our loop and plain loops of transformers and PEFT, in one run.

    python benchmarks/training/finetune.py models/smollm2-135m chats.jsonl [--rank 16] [--rounds 5]

ours       training.step, as `python -m training chats.jsonl --init DIR --lora 16` takes it: its
           blocks are compiled in the first step, which is not timed
peft       LlamaForCausalLM in bf16, PEFT's adapters as it makes them (fp32), AdamW, clipping
peft-bf16  the same with adapters in bf16, too

All read the same rows, packed with whole conversations: the plain loops need not pad. A step is
batch, forward, backward, clipping and update, and a speed is that of the median step. The plain
loops take the number of --plain-rows at a time that is fastest for them. Each contender has a
process of its own, only one works at a time, and they take turns. Memory is the largest that the
process has held, with PyTorch and the reading of the weights.
"""

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.memory import peak_memory
from gptcore.system.cores import n_cores
from gptcore.text.tokenizer import Tokenizer
from training.data.rows import IGNORED
from training.data.shards.folder import load_shards, prepare
from training.data.sources import open_corpus
from training.formats.places import find_files
from training.machine.processes import World
from training.run.base import open_base, shape_of
from training.run.config import ADAPTERS
from training.run.directory import Run
from training.run.facts import RunData
from training.state import build_state
from training.step import step
from training.tasks.language import LanguageModelling

Step = Callable[[int], float]  # of a step's number; returns its loss


def main() -> None:
    options = parse()
    config, folder = shape_of(options.model)
    with tempfile.TemporaryDirectory() as made:
        corpus, source = open_corpus(find_files(options.text), seed=1)
        shards = prepare(corpus, Path(made), config.vocab_size, Tokenizer.load(folder)).path
        print(f"{source}; {options.batch} x {options.row} tokens a step", flush=True)
        rows = {name: best_rows(name, shards, options) for name in options.only}
        workers = {name: start(name, rows[name], shards, options) for name in options.only}
        seen: dict[str, list[float]] = {name: [] for name in workers}
        memory = {}
        for number in range(options.rounds + 1):
            for name, pipe in workers.items():
                seconds, memory[name], loss = ask(pipe, number)
                seen[name] += [seconds] if number else []  # the first one allocates and compiles
                print(f"{name:12}step {number}: {seconds:.2f} s, loss {loss:.3f}", flush=True)
        for pipe in workers.values():
            pipe.send(None)
    tokens = options.batch * options.row
    fastest = tokens / statistics.median(seen["ours"])
    print(f"\n{'':12}{'rows':>5}{'tokens/s':>10}{'GB':>7}{'ours is faster by':>20}")
    for name, steps in seen.items():
        speed = tokens / statistics.median(steps)
        print(f"{name:12}{rows[name]:5}{speed:10.0f}{memory[name]:7.2f}{fastest / speed:19.2f}x")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder of a Llama")
    parser.add_argument("text", nargs="+", type=Path, help="conversations")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--row", type=int, default=512, help="tokens of a row")
    parser.add_argument("--batch", type=int, default=ADAPTERS.batch_size, help="rows of a step")
    parser.add_argument("--our-rows", type=int, default=ADAPTERS.micro_batch_size)
    parser.add_argument("--plain-rows", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument(
        "--compile", default="auto", choices=("auto", "on", "off"), help="ours only"
    )
    parser.add_argument("--threads", type=int, default=n_cores())
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def best_rows(name: str, shards: Path, options: argparse.Namespace) -> int:
    """Return the rows of a forward pass with which a plain loop is fastest; ours has --our-rows."""
    if name == "ours":
        return options.our_rows
    if len(options.plain_rows) == 1:
        return options.plain_rows[0]
    seconds = {}
    for rows in options.plain_rows:
        pipe = start(name, rows, shards, options)
        seconds[rows] = min(ask(pipe, number)[0] for number in range(3))
        pipe.send(None)
    return min(seconds, key=seconds.__getitem__)


def start(name: str, rows: int, shards: Path, options: argparse.Namespace) -> Connection:
    ours, theirs = get_context("spawn").Pipe()
    arguments = (theirs, name, rows, shards, options)
    get_context("spawn").Process(target=serve, args=arguments, daemon=True).start()
    theirs.close()
    return ours


def ask(pipe: Connection, number: int) -> tuple[float, float, float]:
    """Return seconds, the most gigabytes held, and loss of a step."""
    pipe.send(number)
    return pipe.recv()


def serve(
    pipe: Connection, name: str, rows: int, shards: Path, options: argparse.Namespace
) -> None:
    """Build a contender and take the steps that are asked for; the main function of its process."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    config, _ = shape_of(options.model)
    train = dataclasses.replace(
        ADAPTERS,
        lora=options.rank,
        row_tokens=options.row,
        batch_size=options.batch,
        micro_batch_size=rows,
        compile=options.compile,
        warmup_steps=0,  # the plain loops have none, so that the losses can be compared
    )
    run = Run(config, train, RunData("", False, 0), path=Path())
    task = LanguageModelling(run, load_shards(shards))
    take = CONTENDERS[name](run, task, options)
    while (number := pipe.recv()) is not None:
        started = time.perf_counter()
        loss = take(number)
        seconds = time.perf_counter() - started
        held = peak_memory() / 1e9
        pipe.send((seconds, held, loss))


def ours(run: Run, task: LanguageModelling, options: argparse.Namespace) -> Step:
    initial, _ = open_base(options.model)
    _, state = build_state(run.model, run.train, World(), initial=initial)
    initial.clear()  # as the training does
    return lambda number: step(state, task.batch(number), task.logits, run.train)["loss"]


def peft(
    run: Run, task: LanguageModelling, options: argparse.Namespace, is_whole: bool = True
) -> Step:
    """The loop of tutorials; `is_whole`: adapters in fp32, as PEFT makes them."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaForCausalLM

    model: nn.Module = LlamaForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16)
    rank = options.rank
    adapted = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    model = get_peft_model(model, adapted, autocast_adapter_dtype=is_whole).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=run.train.learning_rate, weight_decay=0.0)

    def mean_loss(x: Tensor, y: Tensor) -> Tensor:
        logits = model(input_ids=x, use_cache=False).logits.float()
        return F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=IGNORED)

    def take(number: int) -> float:
        x, y = task.batch(number)
        optimizer.zero_grad()
        n_parts, total = run.train.n_micro_batches(), 0.0
        for part in zip(x.tensor_split(n_parts), y.tensor_split(n_parts)):
            loss = mean_loss(*part) / n_parts
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(trained, run.train.grad_clip)
        optimizer.step()
        return total

    return take


def peft_bf16(run: Run, task: LanguageModelling, options: argparse.Namespace) -> Step:
    return peft(run, task, options, is_whole=False)


CONTENDERS = {"ours": ours, "peft": peft, "peft-bf16": peft_bf16}

if __name__ == "__main__":
    main()
