"""Training speed: our loop, plain loops of the same size, and plain products, in one run.

    python benchmarks/training/train.py [--text FILE ...] [--rounds 7] [--profile]
    python benchmarks/training/train.py --race --steps 600 --our-steps 130 [--text FILE ...]

ours        training.step, which `python -m training` also uses
gpt2        transformers' GPT2LMHeadModel in fp32, AdamW with PyTorch's defaults, clipping
gpt2-tuned  the same, compiled, in bf16 (autocast) where that is faster, with memory that is kept
textbook    the `wayland` kind of decoder in fp32, AdamW, batches cut anywhere from the text
products    the matrix products of our step alone, which says how fast this machine is

Layers, width, heads, context and vocabulary are those of --preset for all, and each loop of
others takes the number of --plain-rows that is fastest for it. Each contender has
a process of its own, since what our loop asks of malloc would speed up the others too; only
one works at a time. A step is batch, forward, backward, clipping and update; speeds are of
medians over the rounds. --race trains gpt2 for --steps and ours for --our-steps, both through
their whole schedule of learning rates, and compares the time spent in steps and the bits per
byte of the same held-out text.
"""

import argparse
import dataclasses
import statistics
import sys
import tempfile
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
from tqdm import tqdm

from benchmarks.training.contenders import CONTENDERS, Parts
from gptcore.config import PRESETS, ModelConfig
from gptcore.nn import count_parameters
from gptcore.system.cores import n_cores
from training.data.shards.folder import load_shards, prepare
from training.data.sources import open_corpus
from training.evaluation.validation import evaluate
from training.formats.places import find_files
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import RunData
from training.tasks.language import LanguageModelling

RATES = {"ours": 6e-3, "gpt2": 1e-3, "gpt2-tuned": 1e-3, "textbook": 1e-3}
OURS = ("ours", "products")  # with --batch rows a step


def main() -> None:
    options = parse()
    sizes = {"block_size": options.context, "vocab_size": options.vocabulary}
    config = dataclasses.replace(PRESETS[options.preset], **sizes)
    with tempfile.TemporaryDirectory() as folder:
        corpus, source = open_corpus(find_files(options.text), seed=1)
        work = options.shards or Path(folder)
        shards = prepare(corpus, work, config.vocab_size)
        config = dataclasses.replace(config, vocab_size=shards.tokenizer.vocab_size)
        settings = (config, shards.path, options)
        print(f"{source}; {options.batch} x {options.context} tokens a step", flush=True)
        names = ["ours", *([options.rival] if options.race else options.only or CONTENDERS)]
        names = list(dict.fromkeys(names))
        rows = {name: best_rows(name, options, *settings) for name in names}
        workers = {name: start(name, rows[name], *settings) for name in names}
        for name, pipe in workers.items():
            print(f"{name:12}{pipe.recv()}, {rows[name]} rows", flush=True)
        race(workers, rows, options) if options.race else speeds(workers, rows, options)
        for pipe in workers.values():
            pipe.send("end")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="*", type=Path, default=[], help="default: own dialogues")
    parser.add_argument("--shards", type=Path, help="keep the token shards here")
    parser.add_argument("--preset", default="small", choices=("tiny", "nano", "small", "base"))
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=32, help="rows per step, ours")
    parser.add_argument(
        "--plain-rows", type=int, nargs="+", default=[8, 32], help="rows per step, others' loops"
    )
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), help="some contenders")
    parser.add_argument("--rival", default="gpt2", choices=["gpt2", "gpt2-tuned"])
    parser.add_argument(
        "--micro-batch", type=int, default=32, help="rows per micro-batch, ours only"
    )
    parser.add_argument("--compile", default="on", choices=("on", "off"), help="ours only")
    parser.add_argument("--threads", type=int, default=n_cores())
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
    return options


def best_rows(name: str, options: argparse.Namespace, *settings: object) -> int:
    """Return the rows per step with which a loop is fastest; ours has --batch."""
    if name in OURS:
        return options.batch
    if len(options.plain_rows) == 1:
        return options.plain_rows[0]
    seconds = {}  # per row
    for rows in options.plain_rows:
        pipe = start(name, rows, *settings)
        pipe.recv()
        steps = [sum(ask(pipe, "step").values()) for _ in range(4)]
        seconds[rows] = statistics.median(steps[1:]) / rows
        pipe.send("end")
    return min(seconds, key=seconds.__getitem__)


def speeds(
    workers: dict[str, Connection], rows: dict[str, int], options: argparse.Namespace
) -> None:
    seen: dict[str, list[Parts]] = {name: [] for name in workers}
    for number in range(options.rounds + 1):
        for name, pipe in workers.items():
            parts = ask(pipe, "step")
            seen[name] += [parts] if number else []  # the first step allocates and compiles
    steps = {n: statistics.median(sum(p.values()) for p in parts) for n, parts in seen.items()}
    tokens = {name: rows[name] * options.context for name in steps}
    fastest = tokens["ours"] / steps["ours"]
    print(f"\n{'':12}{'rows':>5}{'tokens/s':>10}{'s/step':>9}{'ours is faster by':>20}")
    for name, seconds in steps.items():
        speed = tokens[name] / seconds
        print(f"{name:12}{rows[name]:5}{speed:10.0f}{seconds:9.3f}{fastest / speed:19.2f}x")
    for name in set(OURS) & set(seen):
        print(f"\nparts of {name}, medians, as shares of our step:")
        for part in seen[name][0]:
            seconds = statistics.median(parts[part] for parts in seen[name])
            print(f"{part:24}{seconds:8.3f} s{seconds / steps['ours']:8.1%}")
    if options.profile:
        print(ask(workers["ours"], "profile"))


def race(workers: dict[str, Connection], rows: dict[str, int], options: argparse.Namespace) -> None:
    """Let both reach the same share of their steps at the same time: other load meets both."""
    wanted = {"ours": options.our_steps, options.rival: options.steps}
    taken, seconds = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0.0)
    for _ in tqdm(range(sum(wanted.values()))):
        name = min(wanted, key=lambda name: (taken[name] + 1) / wanted[name])
        parts = ask(workers[name], "step")
        seconds[name] += sum(parts.values()) if taken[name] else 0.0  # the first one compiles
        taken[name] += 1
    print(f"\n{'':10}{'steps':>8}{'seconds':>10}{'bits per byte':>15}")
    for name, pipe in workers.items():
        print(f"{name:10}{wanted[name]:8}{seconds[name]:10.1f}{ask(pipe, 'evaluate'):15.4f}")
    ratio = seconds[options.rival] / seconds["ours"]
    print(f"time of ours / {options.rival}: 1 / {ratio:.1f}")


def start(name: str, rows: int, *settings: object) -> Connection:
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(
        target=serve, args=(theirs, name, rows, *settings), daemon=True
    )
    process.start()
    theirs.close()
    return ours


def ask(pipe: Connection, request: str):
    pipe.send(request)
    return pipe.recv()


def serve(
    pipe: Connection, name: str, rows: int, config: ModelConfig, shards: Path, options
) -> None:
    """Build a contender and answer requests; the main function of its process."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    steps = options.our_steps if name in OURS else options.steps
    train = TrainConfig(
        steps=steps,
        batch_size=rows,
        micro_batch_size=min(options.micro_batch, rows),
        learning_rate=getattr(options, f"{name.replace('-', '_')}_rate", 0.0),
        warmup_steps=max(1, steps // 20),
        decay_share=0.8,
    )
    task = LanguageModelling(
        Run(config, train, RunData("", False, 0), path=Path()), load_shards(shards)
    )
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


if __name__ == "__main__":
    main()
