"""python -m training evaluate DIR: how well a run or an exported model folder does.

    python -m training evaluate runs/mine
    python -m training evaluate models/mine --variant int8 --data eval.jsonl.gz book.txt

Prints bits per byte of the given texts by source (a row's "source", else the file; see
training/evaluation/bits_per_byte.py), and how many of the conversations of
training/evaluation/behaviour.toml are passed, by skill: each is held once at temperature 0
and, for each of a few seeds, at 0.7. A run is computed by PyTorch, a folder by ONNX Runtime.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from gptcore.bundle import FACTS
from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.generate import Model
from gptcore.nn import build_model
from gptcore.nn.checkpoint import load_weights
from gptcore.nn.gpt import whole_sequence
from gptcore.nn.torch_session import TorchSession
from gptcore.sampling import Sampling
from training.data.corpus import find_files, read_sourced
from training.evaluation.behaviour import (
    GREEDY,
    SUITE,
    Conversation,
    Result,
    answers_of,
    converse,
    load_suite,
)
from training.evaluation.bits_per_byte import Logits, Total, bits_per_byte
from training.machine.devices import pick_device
from training.run.directory import Run, write_json

TEMPERATURE, SEEDS = 0.7, 5
Rounds = list[list[Result]]  # the suite greedily, then for each seed


def run_evaluate(arguments: list[str]) -> dict[str, Any]:
    """All that was measured; it is printed, too."""
    options = parser().parse_args(arguments)
    if not (1 <= options.seeds <= 100):
        raise UserError(f"--seeds {options.seeds} is out of range: choose 1 to 100")
    files, suite = find_files(options.data), load_suite(options.suite)
    subject = open_subject(options.directory, options.variant)
    print(subject.name)
    started = time.perf_counter()
    report: dict[str, Any] = {"model": subject.name}
    if files:
        with one_thread():
            totals = bits_per_byte(subject.model, subject.logits, read_sourced(files))
        report["bits_per_byte"] = print_bits(totals)
    if subject.is_chat:
        with one_thread():
            rounds = hold(suite, subject.model, options.seeds)
        report |= {"n_seeds": options.seeds, "skills": by_skill(rounds)}
        report["conversations"] = told(rounds)
        print_skills(report["skills"], options.seeds)
        if options.verbose:
            print_failed(rounds)
    else:
        print("it was not trained on conversations: the suite is left out")
    report["seconds"] = round(time.perf_counter() - started, 1)
    print(f"in {report['seconds']} s")
    if options.out:
        write_json(options.out, report)
    return report


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m training evaluate",
        description="Bits per byte of given texts, and what a model makes of short conversations.",
    )
    result.add_argument("directory", type=Path, help="a run directory, or an exported model folder")
    result.add_argument(
        "--data", nargs="+", type=Path, default=[], help=".jsonl, .txt, .gz of them, or folders"
    )
    result.add_argument("--variant", help="which of a folder's files, such as int8 (the fastest)")
    result.add_argument("--suite", type=Path, default=SUITE, help="a .toml like behaviour.toml")
    result.add_argument("--seeds", type=int, default=SEEDS, help=f"how often to sample ({SEEDS})")
    result.add_argument("--verbose", action="store_true", help="print the replies that failed")
    result.add_argument("--out", type=Path, help="a .json to write all figures and replies to")
    return result


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes on one: two gain little for one row of a small model, and where the cores
    have other work they take several times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TorchModel:
    """A run's best checkpoint, for gptcore.generate; every prompt is read anew."""

    def __init__(self, run: Run):
        checkpoint = run.best_checkpoint()
        self.config, self.tokenizer, self.step = run.model, run.tokenizer, checkpoint.facts["step"]
        self.device = pick_device()
        self.network = build_model(run.model).eval()
        load_weights(self.network, checkpoint.model, checkpoint.path)
        self.network.to(self.device)
        self.replies: dict[tuple[tuple[int, ...], str], list[int]] = {}

    @contextmanager
    def lease(self, ids: list[int]) -> Iterator[TorchSession]:
        yield TorchSession(self.network)

    def recall(self, before: list[int], text: str) -> list[int] | None:
        return self.replies.get((tuple(before), text))

    def remember(self, before: list[int], text: str, ids: list[int]) -> None:
        self.replies[tuple(before), text] = ids

    @torch.inference_mode()
    def logits(self, ids: np.ndarray) -> np.ndarray:
        inputs = whole_sequence(torch.from_numpy(ids).to(self.device)[None])
        logits, _ = self.network(**inputs)
        return logits[0].cpu().numpy()


class Subject(NamedTuple):
    """What is evaluated."""

    name: str
    is_chat: bool
    model: Model
    logits: Logits


def open_subject(path: Path, variant: str | None) -> Subject:
    if (path / FACTS).is_file():
        return open_folder(path, variant)
    if not (path / "config.json").is_file():
        raise UserError(f"neither a training run nor an exported model folder: {path}")
    run = Run.load(path)
    if variant:
        raise UserError(f"--variant {variant}: a run has none, an exported folder may")
    if isinstance(run.model, Seq2SeqConfig):
        raise UserError(f"{path} is a translation: export it, then python -m export score")
    model = TorchModel(run)
    name = f"{path}: step {model.step:,}, PyTorch"
    return Subject(name, run.data["chat"], model, model.logits)


def open_folder(path: Path, variant: str | None) -> Subject:
    # Here, because no training needs ONNX Runtime.
    from gptcore.onnx_session import OnnxSession, RunStop, load_model

    model = load_model(path, variant=variant)
    session = OnnxSession(model)

    def logits(ids: np.ndarray) -> np.ndarray:
        feeds = {
            "input_ids": ids[None],
            "attention_mask": np.ones((1, len(ids)), np.int64),
            "position_ids": np.arange(len(ids))[None],
        }
        return session.run(feeds, RunStop().options)[0][0]  # the session's cache stays empty

    name = f"{path}: {model.bundle.name}, {model.variant}, ONNX Runtime"
    return Subject(name, model.bundle.is_chat, model, logits)


def hold(suite: list[Conversation], model: Model, n_seeds: int) -> Rounds:
    """All conversations, greedily and sampled."""
    answer, rounds = answers_of(model), []
    with tqdm(total=len(suite) * (1 + n_seeds), desc="talking", disable=None) as bar:
        for seed in range(n_seeds + 1):
            rounds.append([])
            for number, conversation in enumerate(suite):
                # A seed of its own, else the first tokens of a round all come from one number.
                own = seed * len(suite) + number
                sampling = Sampling(TEMPERATURE, seed=own) if seed else GREEDY
                rounds[-1].append(converse(conversation, answer, sampling))
                bar.update()
    return rounds


def by_skill(rounds: Rounds) -> dict[str, dict[str, float]]:
    """For each skill and for all: how many conversations, and which shares of them passed."""
    skills = list(dict.fromkeys(result.conversation.skill for result in rounds[0]))
    table = {skill: shares(rounds, [skill]) for skill in skills}
    return table | {"all": shares(rounds, skills)}


def shares(rounds: Rounds, skills: list[str]) -> dict[str, float]:
    passed = [
        [not result.faults for result in results if result.conversation.skill in skills]
        for results in rounds
    ]
    greedy, *sampled = map(statistics.mean, passed)
    return {
        "n": len(passed[0]),
        "greedy": greedy,
        "sampled": statistics.mean(sampled),
        "lowest": min(sampled),
    }


def told(rounds: Rounds) -> list[dict[str, Any]]:
    """Every conversation with all that was replied to it."""
    return [
        {
            **dataclasses.asdict(results[0].conversation),
            "held": [
                {
                    "seed": seed,  # 0: greedily
                    "replies": [reply._asdict() for reply in result.replies],
                    "faults": result.faults,
                }
                for seed, result in enumerate(results)
            ],
        }
        for results in zip(*rounds)
    ]


def print_bits(totals: dict[str, Total]) -> dict[str, dict[str, float]]:
    """Print the table, and return it."""
    totals = dict(sorted(totals.items())) | {"all": sum(totals.values(), Total())}
    width = max(len(source) for source in [*totals, "source"])
    print(f"\n{'source':{width}}{'documents':>11}{'bytes':>12}{'bits per byte':>15}")
    for source, total in totals.items():
        figures = f"{total.n_documents:11,}{total.n_bytes:12,}{total.bits_per_byte:15.4f}"
        print(f"{source:{width}}{figures}")
    return {
        source: dataclasses.asdict(total) | {"bits_per_byte": total.bits_per_byte}
        for source, total in totals.items()
    }


def print_skills(table: dict[str, dict[str, float]], n_seeds: int) -> None:
    width = max(len(skill) for skill in table)
    head = f"{'n':>5}{'greedy':>9}{'sampled':>9}{'lowest':>9}"
    print(f"\n{'skill':{width}}{head}   ({n_seeds} seeds at {TEMPERATURE})")
    for skill, row in table.items():
        percents = "".join(f"{row[key]:9.1%}" for key in ("greedy", "sampled", "lowest"))
        print(f"{skill:{width}}{row['n']:5}{percents}")


def print_failed(rounds: Rounds) -> None:
    """The failed conversations with all that was said, by skill."""
    failed = [(result, seed) for seed, held in enumerate(rounds) for result in held]
    failed = [(result, seed) for result, seed in failed if result.faults]
    failed.sort(key=lambda pair: pair[0].conversation.skill)
    for skill, group in groupby(failed, key=lambda pair: pair[0].conversation.skill):
        print(f"\n--- {skill}")
        for result, seed in group:
            print(f"\n{f'seed {seed}' if seed else 'greedy'}: {', '.join(result.faults)}")
            for text, reply in zip(result.conversation.user, result.replies):
                print(f"  > {text}\n    {reply.text}")
