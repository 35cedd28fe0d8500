"""python -m training doctor runs/NAME: check every file of a run and tell what can be resumed.

$ python -m training doctor runs/mine
ok       checkpoints/step-500
DAMAGED  runs/mine/checkpoints/step-750/model.safetensors is damaged: ...
error: 1 of 6 parts is damaged; step 500 can be resumed: python -m training ...
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from gptcore.bundle import SOURCE_TOKENIZER
from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.system.files import LOCK, list_checkpoints, locked, read_object, step_of
from gptcore.system.wording import counted, word
from gptcore.text.tokenizer import Tokenizer
from training.data.pairs.sentences import TRAINING, VALIDATION, read_pairs
from training.data.shards.folder import is_finished, is_url
from training.data.sources import shards_of
from training.machine.progress import waiting
from training.run.base import first_weights
from training.run.directory import Run

INITIAL = "weights of --init"  # a part of a run
WRITTEN_AGAIN = ("checkpoints/", "metrics", "summary")  # parts that a resumed run can do without


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run directory, such as runs/small")


def run(options: argparse.Namespace) -> int:
    """Check each part of the run. Raises UserError, with advice, if one is damaged."""
    return examine_all(Run.load(options.run))


def examine_all(run: Run) -> int:
    parts, damaged, sound_steps = list(parts_of(run)), [], []
    for name, examine in parts:
        try:
            with waiting(f"checking {name}"):
                examine()
        except UserError as error:
            damaged.append(name)
            print(f"DAMAGED  {error}")
        else:
            print(f"ok       {name}")
            sound_steps += [step_of(Path(name))] if name.startswith("checkpoints/") else []
    for left in left_over(run):
        print(f"left     {left.relative_to(run.path)}: from an interrupted save, may be deleted")
    verdict = advise(run, sound_steps, damaged)
    if damaged:
        verb = "is" if len(damaged) == 1 else "are"
        raise UserError(
            f"{len(damaged)} of {counted(len(parts), 'part')} {verb} damaged; {verdict}"
        )
    print(verdict)
    return 0


def left_over(run: Run) -> list[Path]:
    """Return the files of saves that were interrupted; none if a command is training there now."""
    if found := sorted(run.path.rglob("*.tmp")):
        with suppress(OSError), locked(run.path / LOCK, timeout=0):
            return found
    return []


def parts_of(run: Run) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each part's name, and a function that raises UserError if the part is damaged."""
    yield "config.json", lambda: Run.load(run.path)
    yield "metrics.jsonl", lambda: check_metrics(run)
    if (run.path / "summary.json").exists():
        yield "summary.json", lambda: read_object(run.path / "summary.json")
    if isinstance(run.model, Seq2SeqConfig):
        for name in ("tokenizer", SOURCE_TOKENIZER):
            yield name, partial(Tokenizer.load, run.path / name)
        for name in (TRAINING, VALIDATION):
            yield name, partial(read_pairs, run.path / name)
    else:
        yield "tokenizer", lambda: run.tokenizer
        place = str(run.data.shards)
        is_here = is_finished(place) and not is_url(place)
        if not run.is_settled or is_here:  # else nobody needs them any more
            yield f"token shards, {place}", lambda: check_shards(run)
        if run.train.lora or (run.train.keep and not run.is_settled):  # else mixed already
            yield INITIAL, lambda: first_weights(run)
    for path in list_checkpoints(run.checkpoints):
        yield f"checkpoints/{path.name}", partial(check_checkpoint, run, path)


def check_metrics(run: Run) -> None:
    """Raise UserError for a broken line, or if nothing was written of what should have been.

    A kill may cut the last line, which a resumed run drops.
    """
    path, written = run.path / "metrics.jsonl", ""
    done = max(map(step_of, list_checkpoints(run.checkpoints)), default=0)
    if path.exists():
        written = path.read_text("utf-8", "replace")
    elif done >= 1.5 * run.train.log_every:  # a line just before the end is left out
        raise UserError(f"{path} is missing")
    *lines, last = written.split("\n")
    if not "{".startswith(last[:1]):  # neither empty nor the beginning of a line
        lines.append(last)
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path}, line {number} is not a record of a step") from None


def check_shards(run: Run) -> None:
    """Raise UserError if the token shards are damaged, or were made with another tokenizer."""
    if run.tokenizer.sha256 != shards_of(run).tokenizer.sha256:
        raise UserError(f"{run.path / 'tokenizer'} is not the tokenizer of the token shards")


def check_checkpoint(run: Run, path: Path) -> None:
    """Raise UserError if a checkpoint is damaged, not this model's, or has non-finite numbers."""
    from gptcore.nn import build_model  # it imports torch
    from gptcore.nn.checkpoint import load_checkpoint, load_weights
    from training.lora import add_adapters

    checkpoint, model = load_checkpoint(path), build_model(run.model)
    if run.train.lora:
        add_adapters(model, run.train.lora)
    load_weights(model, checkpoint.model, path)
    for name, tensor in (checkpoint.model | checkpoint.state).items():
        if not tensor.isfinite().all():
            raise UserError(f"{path}: {name} holds numbers that are not finite")


def advise(run: Run, sound_steps: list[int], damaged: list[str]) -> str:
    command = "python -m training"
    command += " translate" if isinstance(run.model, Seq2SeqConfig) else ""
    needed = [name for name in damaged if not name.startswith(WRITTEN_AGAIN)]
    if run.is_settled and max(sound_steps, default=0) >= run.train.steps:
        complete = f"the run is complete, at step {run.train.steps}"
        exported = [name for name in needed if name.endswith("tokenizer")]
        exported += [INITIAL] * (INITIAL in needed and bool(run.train.lora))
        sound = f", but it cannot be exported before these parts are sound: {', '.join(exported)}"
        return complete + sound if exported else complete
    if needed:
        return f"nothing can be resumed before they are sound: {', '.join(needed)}"
    if not sound_steps:
        return "nothing can be resumed: start a new run with another --out"
    return f"step {max(sound_steps)} can be resumed: {command} --out {word(run.path)} --resume"
