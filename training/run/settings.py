"""The option --set KEY=VALUE, which changes fields of ModelConfig and TrainConfig.

>>> from gptcore.config import PRESETS
>>> model, training = read_settings(["n_layer=2", "steps=7"], PRESETS["nano"], TrainConfig())
>>> model.n_layer, training.steps
(2, 7)
"""

import argparse
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from gptcore.checks import UserError, check_choice
from gptcore.config import ModelConfig, Seq2SeqConfig
from gptcore.system.wording import word
from gptcore.typed_json import as_json
from training.run.config import TrainConfig
from training.run.directory import Run, begun

# Options without which a training is described; what may be set is checked against the run's.
ANYTIME = ("out", "resume", "set", "timeout", "verbose")
# Settings that a resumed run may change: they do not say what is learned.
FREE = (
    "micro_batch_size",
    "gradient_checkpointing",
    "compile",
    "log_every",
    "save_every",
    "keep_checkpoints",
)
UNPLANNED = TrainConfig(batch_size=1, micro_batch_size=1)  # fits any of the two that is chosen
Shape = TypeVar("Shape", bound=ModelConfig)


def read_settings(
    pairs: list[str], model: Shape, training: TrainConfig
) -> tuple[Shape, TrainConfig]:
    """Return both configurations with the given fields changed. Raises UserError for a bad pair."""
    values = parse_settings(pairs, get_type_hints(type(model)) | get_type_hints(TrainConfig))
    if "lora" in values:
        remedy = "write --lora RANK, with --init"
        if isinstance(model, Seq2SeqConfig):
            remedy = "a translator has no adapters: drop it"
        raise UserError(f"--set lora={values['lora']}: {remedy}")
    model_keys = {field.name for field in dataclasses.fields(model)}
    of_model = {key: value for key, value in values.items() if key in model_keys}
    of_training = {key: value for key, value in values.items() if key not in model_keys}
    return dataclasses.replace(model, **of_model), dataclasses.replace(training, **of_training)


def check_row(model: ModelConfig, training: TrainConfig) -> None:
    """Raise UserError if a row is longer than the model's context."""
    if training.row_tokens > model.block_size:
        raise UserError(
            f"row_tokens={training.row_tokens} is more than the model's context: choose at "
            f"most block_size={model.block_size}"
        )


def parse_settings(pairs: list[str], types: dict[str, type]) -> dict[str, Any]:
    """Parse KEY=VALUE texts into values of the fields' types. Raises UserError for a bad pair."""
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair}: write it as KEY=VALUE")
        check_choice("setting", key, types)
        values[key] = parse_value(key, text, types[key])
    return values


def names_of(pairs: list[str]) -> set[str]:
    """Return the names of the settings in --set options."""
    return {pair.partition("=")[0] for pair in pairs}


def parse_value(key: str, text: str, wanted: type) -> Any:
    if get_origin(wanted) is Literal:
        check_choice(key, text, get_args(wanted))
        return text
    if wanted is bool:
        check_choice(key, text, ("true", "false"))
        return text == "true"
    try:
        return wanted(text)
    except ValueError:
        raise UserError(f"--set {key}={text}: give a value of type {wanted.__name__}") from None


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options that all training commands have."""
    add_set(parser)
    parser.add_argument(
        "--verbose", action="store_true", help="print all settings, and the rules behind a plan"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in --out; with the other options given, start it if there is none",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        help="with torchrun: seconds to wait for another process (%(default)g)",
    )


def add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting; "
        + ("see below" if parser.epilog else "python -m training --help lists them"),
    )


def is_start(options: argparse.Namespace) -> bool:
    """Return whether the options describe a training, beyond naming the run's folder."""
    return any(value for name, value in vars(options).items() if name not in ANYTIME)


def goes_on(options: argparse.Namespace) -> bool:
    """Return whether to resume: --resume is given, and a run exists or none could be started."""
    return options.resume and (begun(options.out) or not is_start(options))


def fixed_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the options that a run records besides its settings."""
    others = (*ANYTIME, "text", "pairs")
    return {
        name: "; ".join(value) if isinstance(value, list) else str(value)
        for name, value in vars(options).items()
        if value and name not in others
    }


def resumed(run: Run, pairs: list[str], fixed: Mapping[str, str]) -> Run:
    """Return the run with the given settings; `pairs`: those of --set.

    Raises UserError if one that a resume may not change, or a fixed option, is not the run's. What
    nobody gave is the run's, so it is not compared.
    """
    model, training = read_settings(pairs, run.model, run.train)
    chosen = names_of(pairs)
    if "minutes" in run.options:
        chosen -= {"decay_share"}  # the clock may have changed it
    values = model.to_dict() | training.to_dict()
    given = {name: value for name, value in values.items() if name in chosen}
    # Apart, because one of each has the name "init".
    check_same(run, given, run.model.to_dict() | run.train.to_dict())
    check_same(run, fixed, as_json(run.data) | run.options)
    return with_free(run, training)


def check_same(run: Run, given: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise UserError if a given setting or option differs from the run's own."""
    for key, value in given.items():
        if differs(key, value, own.get(key)):
            found = f"has {key}={own[key]}" if key in own else "was started without it"
            remedy = "give the options that it was started with, or only --out, or choose another"
            if run.is_settled and not isinstance(run.model, Seq2SeqConfig):
                found += " and is complete"
                remedy = f"to train it further, add --init {word(run.path)} and choose another"
            raise UserError(
                f"--resume: {key}={value}, but the run in {run.path} {found}: {remedy} --out"
            )


def differs(key: str, wanted: Any, own: Any) -> bool:
    """Return whether a setting differs from the run's, and a resume may not change it.

    The precision was picked at the start if it is auto.
    """
    is_free = key in FREE or key.endswith("vocab_size") or (key, wanted) == ("dtype", "auto")
    return wanted != own and not is_free


def with_free(run: Run, training: TrainConfig) -> Run:
    """Return the run with those of the settings that a resumed run may change.

    Where auto is wanted, what was picked stays.
    """
    wanted = {name: getattr(training, name) for name in FREE}
    new = {name: value for name, value in wanted.items() if value != "auto"}
    return dataclasses.replace(run, train=dataclasses.replace(run.train, **new))


def settings_help(
    model: ModelConfig, training: TrainConfig, preset: str, idle: Collection[str]
) -> str:
    """Return the part of --help that lists the settings, their defaults and their comments.

    `idle`: settings that --set refuses here, or that have no effect.
    """
    lines = [f"model settings (the defaults depend on the preset; these are {preset}'s):"]
    lines += [*explained(model, idle), "training settings:", *explained(training, idle)]
    return "\n".join(lines)


def explained(config: ModelConfig | TrainConfig, idle: Collection[str]) -> Iterator[str]:
    """Yield a line of help for each field that is not idle."""
    meaning = meanings(type(config))
    for key, value in config.to_dict().items():
        if key in idle:
            continue
        shown = str(value).lower() if isinstance(value, bool) else value
        yield f"  {f'{key}={shown}':26}  {meaning.get(key, '')}".rstrip()


def meanings(cls: type) -> dict[str, str]:
    """Return what each field of a dataclass means: the comment beside it; parents' fields
    included."""
    sources = "".join(inspect.getsource(parent) for parent in reversed(cls.__mro__[:-1]))
    return dict(re.findall(r"^    (\w+): .*  # (.+)$", sources, re.MULTILINE))


def describe(model: ModelConfig, training: TrainConfig) -> str:
    """Return the resolved settings as two paragraphs of text."""
    paragraphs = []
    for name, config in (("model:", model), ("training:", training)):
        values = ", ".join(f"{key}={value}" for key, value in config.to_dict().items())
        paragraphs.append(
            textwrap.fill(values, 100, initial_indent=f"{name:10}", subsequent_indent=" " * 10)
        )
    return "\n".join(paragraphs)
