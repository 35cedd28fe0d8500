"""python -m training evaluate DIR: measure a run or an exported model folder.

    python -m training evaluate runs/mine
    python -m training evaluate models/mine --variant int8 --data eval.jsonl.gz book.txt

The command prints bits per byte of the given texts by source (a row's "source", else the file;
see training/evaluation/bits_per_byte.py), and the share of conversations passed by skill (see
training/data/behaviour.toml). Each conversation is held once at temperature 0, and once
at 0.7 for each of a few seeds. Then it says how often the model repeats a value that it was told,
in structures of sentences that this project's dialogues teach, and in some that they do not.
PyTorch computes a run, ONNX Runtime an exported folder.
"""

import argparse
import dataclasses
import time
from itertools import groupby
from pathlib import Path
from typing import Any

from gptcore.bundle import FACTS, read_facts
from gptcore.checks import UserError
from gptcore.system.files import write_json
from training.commands.train import add_asked
from training.data.corpus import read_sourced
from training.data.leaks import SUITE
from training.evaluation.behaviour import Conversation, load_suite
from training.evaluation.bits_per_byte import Total, bits_per_byte
from training.evaluation.copying import HELD_OUT, TAUGHT, VERBS, copy_suite
from training.evaluation.rounds import TEMPERATURE, Rounds, by_skill, hold, transcripts
from training.formats.places import File, find_files
from training.jobs.options import asked_of
from training.machine.progress import waiting
from training.run.directory import Run
from training.run.lock import check_writable

SEEDS = 5  # sampled rounds of the suite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, help="a run directory, or an exported model folder")
    parser.add_argument(
        "--data",
        nargs="+",
        default=[],
        help="texts to measure: files, folders, patterns or addresses",
    )
    add_asked(parser)
    parser.add_argument(
        "--variant", help="file of an exported model, such as int8 (default: the fastest)"
    )
    parser.add_argument("--suite", type=Path, default=SUITE, help="a .toml of other conversations")
    parser.add_argument(
        "--seeds",
        type=int,
        default=SEEDS,
        help=f"number of sampled rounds ({SEEDS}); 0: no conversations, which take long with a "
        "large model",
    )
    parser.add_argument("--verbose", action="store_true", help="print the replies that failed")
    parser.add_argument("--out", type=Path, help="write all figures and replies to this .json")


def run(options: argparse.Namespace) -> int:
    if not (0 <= options.seeds <= 100):
        raise UserError(f"--seeds {options.seeds} is out of range: choose 0 to 100")
    asked_of(options)
    files, suite = find_files(options.data), load_suite(options.suite)
    check_directory(options.directory)
    if options.out and options.out.is_dir():
        raise UserError(f"--out {options.out} is a folder: name a file in it")
    if options.out:
        check_writable(options.out.parent)
    report = evaluate(options, files, suite)
    if options.out:
        write_json(options.out, report)
    return 0


def check_directory(path: Path) -> None:
    """Raise UserError if the folder is neither a run nor an exported model."""
    if (path / FACTS).is_file():
        read_facts(path)
    elif (path / "config.json").is_file():
        Run.load(path)
    else:
        raise UserError(f"{path} is neither a training run nor an exported model folder")


def evaluate(
    options: argparse.Namespace, files: list[File], suite: list[Conversation]
) -> dict[str, Any]:
    """Measure the model, print the results, and return them for --out. Raises UserError."""
    with waiting("starting PyTorch"):
        from training.evaluation.subject import open_subject
        from training.machine.devices import one_thread

    with waiting("opening the model"):
        subject = open_subject(options.directory, options.variant)
    print(subject.name)
    started = time.perf_counter()
    report: dict[str, Any] = {"model": subject.name}
    with one_thread():
        if files:
            sourced = read_sourced(files, asked_of(options))
            totals = bits_per_byte(subject.model, subject.logits, sourced)
            report["bits_per_byte"] = print_bits(totals)
        if subject.is_chat and options.seeds:
            rounds = hold(suite, subject.model, options.seeds, subject.n_together)
            report |= {"n_seeds": options.seeds, "skills": by_skill(rounds)}
            report["conversations"] = transcripts(rounds)
            print_skills(report["skills"], options.seeds)
            if options.suite == SUITE:
                copies = by_skill(hold(copy_suite(), subject.model, 1, subject.n_together))
                report["copies"] = {kind: copies[kind] for kind in (TAUGHT, HELD_OUT, VERBS)}
                print_skills(report["copies"], 1)
            if options.verbose:
                print_failed(rounds)
        elif not subject.is_chat:
            print("the model was not trained on conversations: the behaviour suite is skipped")
    report["seconds"] = round(time.perf_counter() - started, 1)
    print(f"evaluated in {report['seconds']} s")
    return report


def print_bits(totals: dict[str, Total]) -> dict[str, dict[str, float]]:
    """Print the table of bits per byte by source, and return it."""
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
    """Print the failed conversations in full, by skill."""
    failed = [(result, seed) for seed, held in enumerate(rounds) for result in held]
    failed = [(result, seed) for result, seed in failed if result.faults]
    failed.sort(key=lambda pair: pair[0].conversation.skill)
    for skill, group in groupby(failed, key=lambda pair: pair[0].conversation.skill):
        print(f"\n--- {skill}")
        for result, seed in group:
            print(f"\n{f'seed {seed}' if seed else 'greedy'}: {', '.join(result.faults)}")
            for text, reply in zip(result.conversation.user, result.replies):
                print(f"  > {text}\n    {reply.text}")
