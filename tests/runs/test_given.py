"""Trainings of a given shape: settings that fit the text, doubts, and what is said before."""

import json
import random
import re
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_shards import BYTES

from gptcore.checks import UserError
from gptcore.config import PRESETS
from gptcore.system.wording import duration
from training.__main__ import main
from training.commands.train import is_shape_open, preset_of
from training.data.rows import Rows
from training.data.shards.folder import load_shards, prepare
from training.jobs.language import NO_LONGER
from training.machine.processes import World
from training.plan.given import NEW, TUNED, Given, doubts, fitted, in_time
from training.plan.plan import Plan
from training.plan.scaling import Facts
from training.run.clock import Clock
from training.run.config import FINE_TUNING, TRAININGS, TrainConfig
from training.run.directory import Run

SETTINGS = [TrainConfig(), *TRAININGS.values()]


def doubted(training: TrainConfig, n_rows: int) -> list[str]:
    """What is doubted of a training on rows of 256 tokens."""
    epochs = training.steps * training.batch_size / n_rows
    return list(doubts(training, n_rows, 256 * n_rows, epochs))


@given(st.sampled_from(SETTINGS), st.integers(1, 10**7), st.sampled_from([4, 16, 60]))
def test_what_nobody_chose_fits_any_text(training: TrainConfig, n_rows: int, epochs: int) -> None:
    reading = NEW._replace(epochs=epochs)
    new = fitted(training, n_rows, 256, (), reading)
    assert new.steps <= training.steps and new.batch_size <= max(n_rows, 1)
    assert new.steps * new.batch_size <= (epochs + 1) * n_rows or new.steps <= NEW.rows
    assert new.warmup_steps <= new.steps / 10
    assert new.eval_every <= new.steps and new.log_every <= new.steps
    assert not doubted(new, n_rows)
    assert fitted(new, n_rows, 256, (), reading) == new


@given(st.integers(1, 10**5))
def test_what_the_user_chose_stays(n_rows: int) -> None:
    asked = TrainConfig(steps=7777, batch_size=24, micro_batch_size=8, warmup_steps=999)
    chosen = ("steps", "batch_size", "micro_batch_size", "warmup_steps")
    new = fitted(asked, n_rows, 256, chosen)
    assert (new.steps, new.batch_size, new.micro_batch_size) == (7777, 24, 8)
    assert new.warmup_steps == 999


@pytest.mark.parametrize(
    ("training", "n_rows", "said"),
    [
        (TrainConfig(steps=1000), 254, "126 epochs: .* give more text, or --set steps=476"),
        (TrainConfig(steps=60, warmup_steps=60), 9999, "never reaches its peak; .*warmup_steps=6"),
        (TrainConfig(steps=20), 5, "batch_size=32, but the text fills 5 rows: .*batch_size=1"),
        (TrainConfig(learning_rate=1.0), 9999, "learning_rate=1: above 0.1 nothing is learned"),
    ],
)
def test_settings_that_cannot_be_right_are_doubted(
    training: TrainConfig, n_rows: int, said: str
) -> None:
    found = doubted(training, n_rows)
    assert len([doubt for doubt in found if re.search(said, doubt)]) == 1


def test_usual_settings_are_not_doubted() -> None:
    assert not doubted(TrainConfig(), n_rows=10_000)


def test_a_fine_tuning_takes_no_longer_than_it_is_given() -> None:
    training = fitted(TrainConfig(steps=300), 4000, 256, (), TUNED)
    plan = Plan(1, PRESETS["tiny"], training, Facts(10**6, 4.0), step_s=1.0, evaluation_s=2.0)
    short = in_time(plan, 100, 4000, ())
    assert short.training.steps == 92 and short.seconds == 100
    assert short.training.warmup_steps == 9 and short.training.eval_every == 23
    assert short.clock == Clock(100, 2.0, most_steps=300)
    assert in_time(plan, 9999, 4000, ()).training == training
    smaller = in_time(plan, 12, 4000, ()).training  # one evaluation, ten seconds of steps
    assert smaller.batch_size == 16 and smaller.steps == smaller.eval_every == 20
    assert smaller.micro_batch_size <= 16
    with pytest.raises(UserError, match=r"too few for 20 steps: give at least 0\.4"):
        in_time(plan, 12, 4000, ("batch_size",))
    slow = Plan(1, PRESETS["tiny"], training, Facts(10**6, 4.0), step_s=400.0, evaluation_s=2.0)
    with pytest.raises(UserError, match=r"too few for 20 steps: give at least 4\.6"):
        in_time(slow, 12, 4000, ())


def test_a_fine_tuning_with_minutes_is_bound_by_them_and_by_the_text(tmp_path: Path) -> None:
    """Of a large text it stopped after a preset's steps, and said that the text needs no more."""
    texts = [f"{n} " + "A word and another. " * 160 for n in range(30)]
    shards = prepare(lambda: texts, tmp_path, 0, BYTES)
    one_row = replace(FINE_TUNING, batch_size=1, micro_batch_size=1, steps=5)
    given = Given(PRESETS["tiny"], one_row, ("batch_size",), tmp_path, 1000, World())
    plan = given.plan(shards)
    n_rows = len(Rows(shards, "train", 256))
    assert plan.training.steps == plan.clock.most_steps == 4 * n_rows > 1000
    assert replace(given, minutes=None).plan(shards).training.steps == 5


@pytest.mark.parametrize(
    ("steps", "step_s", "evaluation_s", "minutes"), [(1000, 1.0, 300.0, 20), (120, 2.0, 60.0, 5)]
)
def test_evaluations_that_take_long_are_few(
    steps: int, step_s: float, evaluation_s: float, minutes: int
) -> None:
    """A fine-tuning of 20 minutes was told to take 35, as it evaluated every 250 steps."""
    training = fitted(TrainConfig(steps=steps), 10**5, 256, ())
    plan = Plan(1, PRESETS["tiny"], training, Facts(10**6, 4.0), step_s, evaluation_s)
    short = in_time(plan, 60 * minutes, 10**5, ())
    assert short.training.eval_every == short.training.steps and short.seconds == 60 * minutes
    assert short.training.save_every <= 250, "a checkpoint is no evaluation"
    asked = in_time(plan, 60 * minutes, 10**5, ("eval_every",)).training
    assert asked.eval_every == training.eval_every


@pytest.fixture
def six(tmp_path: Path) -> Path:
    """Six chats of a few words."""
    rows = [
        [{"role": "user", "content": f"What is {i}?"}, {"role": "assistant", "content": "A number"}]
        for i in range(6)
    ]
    path = tmp_path / "six.jsonl"
    path.write_text("\n".join(json.dumps({"messages": row}) for row in rows))
    return path


@pytest.mark.slow
def test_six_chats_train_after_two_lines(
    six: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "run"
    settings = ["--set", "dtype=float32", "--set", "seed=2"]
    words = [str(six), "--preset", "tiny", *settings, "--out", str(out)]
    assert main(words) == 0
    said = capsys.readouterr().out
    size, time = (
        next(line for line in said.splitlines() if line.startswith(f"{name} "))
        for name in ("size", "time")
    )
    run = Run.load(out)
    assert "in 2 layers, a context of 256 tokens" in size
    assert f"seconds for {run.train.steps} steps, " in time and " passes over the text (" in time
    assert "\nexpected" not in said, "nothing can be said of so short a text"
    assert "\nmodel: " not in said and "note: 114 bytes are little text" in said
    assert run.data.expected_bits_per_byte is None
    # the same command, or a part of it, goes on: what was fitted is not another setting
    for again in (words, [*words[:3], *words[-2:]]):
        assert main([*again, "--resume"]) == 2
        assert "is complete already" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main([*words[:-2], "--verbose", "--plan"]) == 0
    said = capsys.readouterr().out
    assert "model:    vocab_size=" in said and f"training: steps={run.train.steps}, " in said


@pytest.mark.parametrize(("is_table", "n_steps"), [(True, 80), (False, 20)])
def test_trained_weights_learn_answers_by_heart_and_no_plain_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_table: bool, n_steps: int
) -> None:
    lamps = [f"What does lamp {i} cost?,It costs {3 * i + 7} euros." for i in range(60)]
    file = tmp_path / ("lamps.csv" if is_table else "lamps.txt")
    file.write_text("\n".join(["question,answer", *lamps] if is_table else 40 * lamps))
    words = [str(file), "--init", "models/nano", "--plan", "--set", "dtype=float32"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert f" for {n_steps} steps, " in said and (NO_LONGER in said) == (not is_table)


def test_a_short_text_gets_a_small_model() -> None:
    def is_open(**given: object) -> bool:
        nothing = dict.fromkeys(("preset", "init", "minutes", "depth"))
        return is_shape_open(Namespace(**nothing | given))

    assert preset_of(100) == "nano" and preset_of(6_000_000) == "small"
    assert preset_of(0) == "small", "the project's own dialogues"
    assert is_open() and not is_open(preset="base")
    assert not is_open(minutes=2.0) and not is_open(init=Path("models"))


def test_a_large_file_with_little_text_gets_a_small_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    texts = "".join(f"<p>Sheep number {i} jumps over the fence, and sleeps.</p>" for i in range(99))
    page.write_text(f"<html><body>{texts}<style>{'/* */' * 1_100_000}</style></body></html>")
    words = [str(page), "--plan", "--out", str(tmp_path / "run"), "--set", "dtype=float32"]
    assert main(words) == 0
    assert "in 4 layers, a context of 512 tokens" in capsys.readouterr().out
    assert main(["shards", str(page), f"--shards={tmp_path / 'made'}"]) == 0
    assert "training a tokenizer of 2,048 tokens" in capsys.readouterr().out


def test_shards_of_a_short_text_are_for_a_small_model(tmp_path: Path) -> None:
    draw, text = random.Random(1), tmp_path / "text.txt"
    text.write_text(" ".join("".join(draw.choices("abcdefgh", k=6)) for _ in range(9000)))
    assert main(["shards", str(text), f"--shards={tmp_path / 'made'}"]) == 0
    [made] = (path for path in (tmp_path / "made").iterdir() if path.is_dir())
    assert load_shards(made).tokenizer.vocab_size == 2048


def test_alone_it_shows_three_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: ") and said.count("\n  python -m training ") == 3


def test_durations_are_for_people() -> None:
    assert [duration(s) for s in (3, 99, 101, 5999, 6001)] == [
        *("3 seconds", "99 seconds", "1.7 minutes", "100.0 minutes", "1.7 hours")
    ]


def test_a_little_text_is_learned_whole_or_it_is_said_what_may_not_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "shop.csv"
    rows = [f"How much is lamp {i}?,It is {3 * i + 7} euros." for i in range(40)]
    table.write_text("\n".join(["question,answer", *rows]))
    command = [str(table), "--preset", "tiny", "--set", "steps=1", "--out", str(tmp_path / "run")]
    told = r'note: the document that begins with "(.*)" may be set aside to measure on, as'
    assert main([*command, "--plan"]) == 0
    assert not re.findall(told, capsys.readouterr().out)
    shards = load_shards(next((tmp_path / "shards").glob("*/manifest.json")).parent)
    learned = "".join(shards.tokenizer.show(part[:].tolist()) for part in shards.split("train"))
    assert all(row.partition(",")[0] in learned for row in rows)
    long = [f"How is lamp {i} made?,{'It is made of glass. ' * 100}" for i in range(4)]
    table.write_text("\n".join(["question,answer", *long]))
    assert main(["look", str(table)]) == 0
    [said] = re.findall(told, capsys.readouterr().out)
    assert said.startswith("How is lamp ")
    table.write_text("\n".join(["question,answer", *rows * 60]))
    assert main(["look", str(table)]) == 0
    assert "set aside" not in capsys.readouterr().out, "of more text it is a twentieth"


def test_of_a_little_plain_text_the_words_that_may_be_held_out_are_told_without_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"Lamp {i} costs {3 * i + 7} euros, or less. " * 40 for i in range(4)]
    file = tmp_path / "lamps.jsonl"
    file.write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    assert main(["look", str(file)]) == 0
    assert 'note: the document that begins with "Lamp ' in capsys.readouterr().out
