"""--set KEY=VALUE: from words to the fields of the two configurations.

>>> model, training = read_settings(["n_layer=2", "steps=7"], PRESETS["nano"], TrainConfig())
>>> model.n_layer, training.steps
(2, 7)
"""

import argparse
import dataclasses
import textwrap
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gptcore.checks import UserError, check_choice, meanings
from gptcore.config import ModelConfig
from gptcore.facts import as_json
from training.run.config import TrainConfig
from training.run.directory import Run, begun

ANYTIME = ("out", "resume", "timeout")  # options that do not say what is trained


def read_settings(
    pairs: list[str], model: ModelConfig, training: TrainConfig
) -> tuple[ModelConfig, TrainConfig]:
    """The configurations with the given fields changed. UserError names a bad pair."""
    values = parse_settings(pairs, get_type_hints(type(model)) | get_type_hints(TrainConfig))
    model_keys = {field.name for field in dataclasses.fields(model)}
    of_model = {key: value for key, value in values.items() if key in model_keys}
    of_training = {key: value for key, value in values.items() if key not in model_keys}
    return dataclasses.replace(model, **of_model), dataclasses.replace(training, **of_training)


def parse_settings(pairs: list[str], types: dict[str, type]) -> dict[str, Any]:
    """KEY=VALUE texts to values of the right types."""
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair}: write it as KEY=VALUE")
        check_choice("setting", key, types)
        values[key] = parse_value(key, text, types[key])
    return values


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
        raise UserError(f"--set {key}={text}: it is not of type {wanted.__name__}") from None


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options of every kind of training."""
    add_set(parser)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in --out; with everything else given, start it if need be",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        help="under torchrun: seconds to wait for another process (%(default)g)",
    )


def add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting, as python -m training --help lists them",
    )


def is_start(options: argparse.Namespace) -> bool:
    """Whether a command says more than where the run is."""
    return any(value for name, value in vars(options).items() if name not in ANYTIME)


def goes_on(options: argparse.Namespace) -> bool:
    """Whether --resume finds a run to go on with, or names nothing to start one from."""
    return options.resume and (begun(options.out) or not is_start(options))


def fixed_options(options: argparse.Namespace) -> dict[str, str]:
    """What a run notes of the command that starts it, beside what becomes its settings."""
    others = (*ANYTIME, "set", "preset", "text", "pairs")
    return {name: str(v) for name, v in vars(options).items() if v and name not in others}


def check_same(run: Run, model: ModelConfig, training: TrainConfig, **fixed: str) -> None:
    """Refuse to go on with a run under other settings, from another `source` or with other fixed
    options; vocabularies may have become smaller."""
    own = run.model.to_dict() | run.train.to_dict() | as_json(run.data) | run.options
    for key, value in (model.to_dict() | training.to_dict() | fixed).items():
        if differs(key, value, own.get(key)) and not key.endswith("vocab_size"):
            found = f"has {key}={own[key]}" if key in own else "was started without it"
            raise UserError(
                f"--resume: {key}={value}, but the run in {run.path} {found}: give what it was "
                f"started with, or only --out, or choose another --out"
            )


def differs(key: str, wanted: Any, own: Any) -> bool:
    """Whether a setting is not the run's own; dtype=auto is, whatever it was decided to be."""
    return wanted != own and (key, wanted) != ("dtype", "auto")


def settings_help(model: ModelConfig, training: TrainConfig, preset: str) -> str:
    """The settings, their defaults, and the comments beside them, for --help."""
    lines = [f"settings of the model (defaults: those of the preset; here {preset}'s):"]
    lines += [*explained(model), "settings of the training:", *explained(training)]
    return "\n".join(lines)


def explained(config: ModelConfig | TrainConfig) -> Iterator[str]:
    """A line for each field."""
    meaning = meanings(type(config))
    for key, value in config.to_dict().items():
        shown = str(value).lower() if isinstance(value, bool) else value
        yield f"  {f'{key}={shown}':26}  {meaning.get(key, '')}".rstrip()


def describe(model: ModelConfig, training: TrainConfig) -> str:
    """The resolved settings, in a paragraph each."""
    paragraphs = []
    for name, config in (("model:", model), ("training:", training)):
        values = ", ".join(f"{key}={value}" for key, value in config.to_dict().items())
        paragraphs.append(
            textwrap.fill(values, 100, initial_indent=f"{name:10}", subsequent_indent=" " * 10)
        )
    return "\n".join(paragraphs)
