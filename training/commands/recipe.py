"""python -m training recipe NAME: a model in stages, each a mix of datasets, as a TOML file says.

    >>> [stage.name for stage in read_recipe("default")]
    ['pretrain', 'finetune', 'polish']

A recipe is training/recipes/NAME.toml, or any file of that form: the model's settings, those of
the training, and for each stage its mix, which is how often each dataset is read. A stage is one
pass over its mix and begins with the best weights of the stage before it. Each stage is
a run in OUT/STAGE. The same command again goes on where the last one stopped.
"""

import argparse
import dataclasses
import math
import random
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from gptcore.checks import UserError, check_choice
from gptcore.config import ModelConfig
from training.data.batches import Rows
from training.data.corpus import Corpus, Document
from training.data.leaks import without_leaks
from training.data.shards import Shards, prepare
from training.data.sources import N_DIALOGUES, facts_of, own_dialogues, shards_of
from training.datasets.reading import read_dataset
from training.datasets.registry import DATASETS
from training.loop import train
from training.machine.processes import World, join
from training.run.config import TrainConfig
from training.run.directory import Run, begun, check_writable, say_next
from training.run.settings import describe
from training.tasks.language import LanguageModelling

RECIPES = Path(__file__).parent.parent / "recipes"
SHARDS = "shards"  # the folder beside the stages'
DIALOGUES = "dialogues"  # the project's own, without end: one pass is N_DIALOGUES of them

# Of every stage, so that none measures on what another has learned: documents are held out by
# their hash, those of a smaller share among those of a larger one.
HELD_OUT = 0.005


@dataclass(frozen=True)
class Stage:
    """One run of a recipe."""

    name: str
    mix: dict[str, float]  # passes over each dataset
    model: ModelConfig
    training: TrainConfig

    def __str__(self) -> str:
        return ", ".join(f"{name} x {passes:g}" for name, passes in self.mix.items())


def read_recipe(name: str) -> list[Stage]:
    """The stages of a shipped recipe or of a file. UserError names what is wrong in it."""
    path = RECIPES / f"{name}.toml"
    path = path if path.exists() else Path(name)
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
        raise UserError(f"no recipe {name}: name a file, or one of {known}")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is no TOML: {error}") from None
    check_keys(str(path), found, ("model", "train", "stages"))
    values = found.get("stages")
    if not isinstance(values, list) or not values:
        raise UserError(f"{path}: it needs [[stages]], one after the other")
    stages = [read_stage(str(path), found, stage) for stage in values]
    if len({stage.name for stage in stages}) < len(stages):
        raise UserError(f"{path}: each of the [[stages]] needs a name of its own")
    return stages


def read_stage(where: str, recipe: dict[str, Any], values: Any) -> Stage:
    check_keys(f"{where}, stages", values, ("name", "mix", "train"))
    name = values.get("name")
    if not (isinstance(name, str) and name.isidentifier()) or name == SHARDS:
        raise UserError(f"{where}: a stage has name={name!r}: give it a word as a name")
    where = f"{where}, {name}"
    mix = check_keys(f"{where}, mix", values.get("mix", {}), (DIALOGUES, *DATASETS))
    if not mix:
        raise UserError(f"{where}: it has no mix: name datasets and how often each is read")
    for dataset, passes in mix.items():
        if not (isinstance(passes, int | float) and 0 < passes <= 1000):
            raise UserError(f"{where}: {dataset}={passes}: passes are above 0, up to 1000")
    train = {}
    for found in (recipe, values):
        train |= check_keys(f"{where}, train", found.get("train", {}), get_type_hints(TrainConfig))
    if "steps" in train:
        raise UserError(f"{where}: steps follow from the mix: leave them out")
    shape = check_keys(f"{where}, model", recipe.get("model", {}), get_type_hints(ModelConfig))
    return Stage(name, mix, ModelConfig.from_dict(shape), TrainConfig.from_dict(train))


def check_keys(where: str, values: Any, known: Collection[str]) -> dict[str, Any]:
    """The values, if they are a table of known keys."""
    if not isinstance(values, dict):
        raise UserError(f"{where}: {values!r} is no table of names and values")
    for key in values:
        check_choice(f"name in {where}:", key, known)
    return values


def mixed(stage: Stage, data_dir: Path | None) -> Corpus:
    """The documents of a stage's mix in a random order, the same each time; those that the
    behaviour suite asks are left out. Of 2.5 passes, the third is over a random half. No two
    stages draw the same of the project's own dialogues."""
    seed = f"{stage.training.seed} {stage.name}"
    found = {name: read_dataset(name, data_dir) for name in stage.mix if name != DIALOGUES}
    texts = {name: list(without_leaks(documents)) for name, documents in found.items()}

    def documents() -> Iterator[Document]:
        rng = random.Random(seed)
        own = own_dialogues(seed)
        for i in range(math.ceil(max(stage.mix.values()))):
            shares = {name: min(max(passes - i, 0), 1) for name, passes in stage.mix.items()}
            order: list[Document | None] = []
            for name, share in shares.items():
                if name == DIALOGUES:
                    order += [None] * round(share * N_DIALOGUES)
                else:
                    order += rng.sample(texts[name], round(share * len(texts[name])))
            rng.shuffle(order)
            yield from (next(own) if document is None else document for document in order)

    return documents


def run_recipe(arguments: list[str]) -> dict[str, Any] | None:
    """The summary of the last stage, or None if it was paused."""
    options = parser().parse_args(arguments)
    stages = read_recipe(options.recipe)
    out = options.out or Path("runs") / Path(options.recipe).stem
    check_writable(out)
    before, summary = None, None
    with join(options.timeout) as world:
        for stage in stages:
            summary = run_stage(stage, out, options.data_dir, before, world)
            if summary is None:
                print("the same command again goes on from there")
                return None
            before = Run.load(out / stage.name)
        say_next(out / stages[-1].name, "", summary)
    return summary


def run_stage(
    stage: Stage, out: Path, data_dir: Path | None, before: Run | None, world: World
) -> dict[str, Any] | None:
    """Start a stage, go on with it, or leave it if it is complete."""
    print(f"stage {stage.name}: {stage}")
    path = out / stage.name
    if not begun(path):
        shards = world.in_turns(lambda: make_shards(stage, out, data_dir, before))
        run = new_run(stage, path, shards, before)
        print(describe(run.model, run.train))
        initial = before.best_checkpoint().model if before else None
        return train(run, LanguageModelling(run, shards, world), initial, world=world)
    run = Run.load(path)
    check_unchanged(stage, run)
    if run.is_complete:
        print(f"complete, in {path}")
        return run.summary()
    shards = world.in_turns(lambda: shards_of(run))
    return train(run, LanguageModelling(run, shards, world), resume=True, world=world)


def make_shards(stage: Stage, out: Path, data_dir: Path | None, before: Run | None) -> Shards:
    """With the tokenizer of the stage before, or one of its own."""
    return prepare(
        mixed(stage, data_dir),
        out / SHARDS,
        stage.model.vocab_size,
        stage.model.block_size,
        before.tokenizer if before else None,
        HELD_OUT,
    )


def new_run(stage: Stage, path: Path, shards: Shards, before: Run | None) -> Run:
    """One pass over the stage's mix."""
    model = dataclasses.replace(stage.model, vocab_size=shards.tokenizer.vocab_size)
    n_rows = len(Rows(shards, "train", model.block_size))
    steps = math.ceil(n_rows / stage.training.batch_size)
    facts = facts_of(shards, str(stage))
    facts |= {"datasets": all_passes(stage, before), "stages": earlier(before)}
    return Run(path, model, dataclasses.replace(stage.training, steps=steps), facts)


def check_unchanged(stage: Stage, run: Run) -> None:
    """Refuse to go on with a stage that the recipe describes otherwise by now."""
    wanted = {"mix": str(stage)} | stage.model.to_dict() | stage.training.to_dict()
    own = {"mix": run.data["source"]} | run.model.to_dict() | run.train.to_dict()
    for key, value in wanted.items():
        if value != own[key] and key not in ("vocab_size", "steps"):  # of the text
            raise UserError(
                f"stage {stage.name}: {key}={value}, but the run in {run.path} has "
                f"{key}={own[key]}: restore the recipe, or choose another --out"
            )


def all_passes(stage: Stage, before: Run | None) -> dict[str, float]:
    """Over each dataset, those of earlier stages included."""
    passes = Counter(before.data["datasets"] if before else {})
    passes.update(stage.mix)
    return dict(passes)


def earlier(before: Run | None) -> list[dict[str, Any]]:
    """What the stages up to this run took."""
    if before is None:
        return []
    summary = before.summary()
    took = {key: summary[key] for key in ("steps", "tokens", "seconds")}
    took |= {"name": before.path.name, "source": before.data["source"]}
    return [*before.data["stages"], took]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m training recipe",
        description="Train a model in the stages that a recipe describes, or go on with it.",
    )
    known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
    result.add_argument("recipe", help=f"{known}, or a TOML file")
    result.add_argument("--out", type=Path, help="a folder for the stages' runs (runs/NAME)")
    result.add_argument(
        "--data-dir", type=Path, help="where datasets are; see python -m training datasets"
    )
    result.add_argument("--timeout", type=float, default=300.0, help="see python -m training")
    return result
