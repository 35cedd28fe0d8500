"""What a run's curves mean, in words: each kind of trouble, and none where there is none."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from gptcore.config import PRESETS
from gptcore.facts import Imported
from training.report.findings import LITTLE_BYTES, Finding, findings
from training.report.history import History
from training.report.report import facts, write_report
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import Base, RunData


def run_with(
    path: Path,
    losses: Sequence[float],
    held_out: Sequence[float] = (),
    of_text: Sequence[float] = (),
    expected: float | None = None,
    planned: int | None = None,
    **options: str,
) -> Run:
    """A run of 100 steps with these logged losses, and evaluations at even distances."""
    plan = {"expected_bits_per_byte": expected, "planned_steps": planned}
    data = RunData("chats.csv", True, 9, shards="x", **plan)  # type: ignore[arg-type]
    run = Run(PRESETS["tiny"], TrainConfig(steps=100), data, options=options, path=path)
    run.create()
    for i, loss in enumerate(losses, 1):
        run.log(step=i * 100 // len(losses), loss=loss)
    for i, loss in enumerate(held_out, 1):
        train_loss = of_text[i - 1] if of_text else loss
        run.log(
            step=i * 100 // len(held_out),
            val_loss=loss,
            bits_per_byte=loss / 2,
            train_loss=train_loss,
        )
    return run


def said(*arguments: object, **options: object) -> list[Finding]:
    return findings(History(run_with(*arguments, **options)))  # type: ignore[arg-type]


FALLING = [6 - i * 0.04 for i in range(100)]


def test_a_good_run_has_nothing_to_be_said(tmp_path: Path) -> None:
    assert said(tmp_path, FALLING, [4, 3, 2.5, 2.48], [4, 3, 2.4, 2.4]) == []
    assert said(tmp_path / "begun", [5.0]) == []


def test_a_text_learned_by_heart(tmp_path: Path) -> None:
    run = run_with(tmp_path / "a", FALLING, [4, 3, 3.2, 3.5], [3.9, 2.5, 1.5, 0.8])
    (run.path / "summary.json").write_text('{"seconds": 125}')
    (run.checkpoints / "step-50").mkdir(parents=True)
    [found] = findings(History(run))
    assert found.text == (
        "The loss of unseen text was lowest at step 50 (1.50 bits per byte, 1.75 at the end): the "
        "model learns the training text by heart."
    )
    assert found.remedy == "more text, or a start that knows more: --init models/default"
    assert str(found).endswith("by heart.\n  try " + found.remedy)
    [found] = said(tmp_path / "b", FALLING, [4, 3.1, 3, 3], [3, 2.5, 2.1, 2.0])
    assert "begins to learn the training text by heart" in found.text
    assert said(tmp_path / "c", FALLING, [4, 0.003, 0.004, 0.006], [3, 0.001, 0.001, 0.001]) == []


def test_the_step_that_is_taken_of_a_translator_is_the_one_with_the_best_chrf(
    tmp_path: Path,
) -> None:
    run = run_with(tmp_path, FALLING)
    for step, loss, chrf in ((50, 3.0, 40.0), (75, 3.2, 44.0), (100, 3.5, 43.0)):
        run.log(step=step, val_loss=loss, bits_per_byte=loss / 2, chrf=chrf)
        (run.checkpoints / f"step-{step}").mkdir(parents=True)
    (run.path / "summary.json").write_text('{"seconds": 125}')
    [found] = findings(History(run))
    assert "lowest at step 50" in found.text
    assert facts(History(run))["weights"] == "of step 75"


def test_the_loss_of_weights_that_are_mixed_afterwards_is_no_rise(tmp_path: Path) -> None:
    run = run_with(tmp_path, FALLING, [4, 3, 2.5, 2.48])
    run.log(step=100, val_loss=2.6, bits_per_byte=1.3, train_loss=2.6, kept=0.4)
    assert findings(History(run)) == []


def test_of_trained_weights_measured_once_nobody_knows_whether_they_learned(tmp_path: Path) -> None:
    level = [1.30, 1.31] * 50
    for options, n_found in (({}, 1), ({"init": "models/default"}, 0)):
        run = run_with(tmp_path / str(n_found), level, [1.3], **options)
        said = [found for found in findings(History(run)) if "nothing was learned" in found.text]
        assert len(said) == n_found


def test_a_training_that_goes_on_is_not_judged_as_one_that_ended(tmp_path: Path) -> None:
    run = run_with(tmp_path, FALLING, [4, 3.5, 3.2, 2.9], expected=1.0)
    assert len(findings(History(run))) == 2
    longer = dataclasses.replace(run, train=dataclasses.replace(run.train, steps=200))
    assert findings(History(longer)) == []
    run = run_with(tmp_path / "by heart", FALLING, [4, 3, 3.2, 3.5])
    longer = dataclasses.replace(run, train=dataclasses.replace(run.train, steps=200))
    [found] = findings(History(longer))
    assert "(1.50 bits per byte, 1.75 now)" in found.text
    assert found.text.endswith("by heart."), "of a stopped run the newest weights are taken"


@pytest.mark.parametrize(
    ("prompt", "text", "is_advised"),
    [
        ("Where is", "it? " + "The key is in the drawer of the old table. " * 4, True),
        ("Wo ist", "er? " + "Der Schlüssel liegt in der Schublade des alten Tisches. " * 4, False),
        ("Где он?", "Ключ лежит в ящике старого стола. " * 6, False),
        ("Wo?", "Hier.", True),  # too little to tell
    ],
)
def test_only_english_texts_are_advised_to_begin_with_the_model_that_ships(
    tmp_path: Path, prompt: str, text: str, is_advised: bool
) -> None:
    run = run_with(tmp_path, FALLING, [4, 3, 3.2, 3.5], [3.9, 2.5, 1.5, 0.8])
    run.add_samples(100, [(prompt, text)])
    [found] = findings(History(run))
    assert ("--init models/default" in found.remedy) == is_advised


def test_a_training_that_ended_too_early(tmp_path: Path) -> None:
    [found] = said(tmp_path, FALLING, [4, 3.5, 3.2, 2.9])
    assert found.text.startswith(
        "The loss of unseen text was still falling at the end, from 1.60 to 1.45 bits"
    )
    assert found.remedy == "a longer training: --set steps=200"
    [found] = said(tmp_path / "b", FALLING, [4, 3.5, 3.2, 2.9], minutes="8")
    assert found.remedy.endswith("--minutes 16")
    run = run_with(tmp_path / "c", FALLING, [4, 3.5, 3.2, 2.9], minutes="8", init="models/nano")
    (run.path / "summary.json").write_text('{"seconds": 40}')
    [found] = findings(History(run))
    assert found.remedy == "more text", "the plan had no use for the time"
    assert said(tmp_path / "d", FALLING, [4, 0.03, 0.02, 0.011]) == [], "near 0 a fall is chance"


def test_a_rate_that_is_too_high(tmp_path: Path) -> None:
    spike = [*FALLING[:50], *(loss * 1.5 for loss in FALLING[50:60]), *FALLING[60:]]
    [found] = said(tmp_path / "a", spike)
    assert "rose by 43%" in found.text and "--set learning_rate=0.001" in found.remedy
    [found] = said(tmp_path / "b", [6.0 + 0.01 * (i % 7) for i in range(100)])
    assert "nothing was learned" in found.text and "--set learning_rate=0.0003" in found.remedy
    of_trained_weights = [1.5 - 0.03 * (i > 9) + 0.01 * (i % 7) for i in range(100)]
    assert said(tmp_path / "d", of_trained_weights, [1.52, 1.49, 1.48, 1.48]) == []
    [found] = said(tmp_path / "e", of_trained_weights, [1.48, 1.49, 1.5, 1.48])
    assert "nothing was learned" in found.text
    near_zero = [loss / 100 for loss in spike]
    assert not any("rose by" in found.text for found in said(tmp_path / "z", near_zero))
    one_outlier = [*FALLING[:50], 40.0, *FALLING[51:]]
    assert said(tmp_path / "c", one_outlier) == []


def test_a_loss_that_the_plan_did_not_expect(tmp_path: Path) -> None:
    [found] = said(tmp_path / "a", FALLING, [4, 3, 2.5, 2.48], expected=1.0)
    assert found.text.startswith("The plan expected 1.00 bits per byte, the run reached 1.24:")
    assert found.remedy == "" and "try" not in str(found)
    [found] = said(
        tmp_path / "c", FALLING, [4, 3, 2.5, 2.48], expected=1.0, planned=250, minutes="2"
    )
    assert "There was time for 100 of the 250 planned steps" in found.text
    assert found.remedy == "a longer training: --minutes 5"
    [found] = said(
        tmp_path / "d", FALLING, [4, 3, 2.5, 2.48], expected=1.0, planned=250, minutes="48"
    )
    assert found.remedy == "a longer training: --minutes 120"
    best_is_exported = said(tmp_path / "b", FALLING, [4, 2, 2.5, 3.5], expected=1.0)
    assert not any("plan expected" in found.text for found in best_is_exported)


def test_too_few_steps_for_a_little_text_are_told_where_no_loss_is_expected(tmp_path: Path) -> None:
    run = run_with(tmp_path, FALLING, [4, 3, 3.2, 3.5], planned=215, minutes="2")
    data = dataclasses.replace(run.data, held_out_tokens=57)
    hurried, little = findings(History(dataclasses.replace(run, data=data)))
    assert hurried.text == "There was time for 100 of the 215 planned steps."
    assert hurried.remedy == "a longer training: --minutes 4.3"
    assert little.text.startswith("Only 57 tokens could be set aside")
    as_planned = dataclasses.replace(data, planned_steps=100)
    assert len(findings(History(dataclasses.replace(run, data=as_planned)))) == 1


def test_less_time_than_conversations_need_is_told_again_at_the_end(tmp_path: Path) -> None:
    """The plan has said so; what to try next is that time, not twice the time or other texts."""
    run = run_with(tmp_path, FALLING, [4, 3, 2.5, 2.3], planned=100, minutes="2")
    data = dataclasses.replace(run.data, held_out_tokens=57, needed_steps=425)
    first, *_ = findings(History(dataclasses.replace(run, data=data)))
    assert first.remedy == "a longer training: --minutes 8.5"
    assert first.text == "There was time for 100 of the 425 steps that these conversations need."


@pytest.mark.parametrize(("recall", "first"), [(0.5, "There was"), (0.97, "Asked in")])
def test_a_table_that_is_known_by_heart_needs_no_more_time(
    tmp_path: Path, recall: float, first: str
) -> None:
    run = run_with(tmp_path, FALLING, [4, 3, 2.5, 2.3], planned=100, minutes="2")
    run.log(step=100, recall=recall, **run.evaluations()[100])
    data = dataclasses.replace(run.data, held_out_tokens=57, needed_steps=425)
    said = findings(History(dataclasses.replace(run, data=data)))
    assert said[0].text.startswith(first)
    known = next(found for found in said if "word for word" in found.text)
    assert f"gives {recall:.0%} of its replies" in known.text and not known.remedy


def test_replies_that_are_not_known_need_a_longer_training(tmp_path: Path) -> None:
    run = run_with(tmp_path, FALLING, [4, 3, 2.5, 2.3], planned=100, minutes="2")
    run.log(step=100, recall=0.5, **run.evaluations()[100])
    data = dataclasses.replace(run.data, held_out_tokens=57)
    known, _ = findings(History(dataclasses.replace(run, data=data)))
    assert known.remedy == "a longer training, if all should be: --minutes 4"


def test_a_loss_over_hardly_a_text_says_little(tmp_path: Path) -> None:
    run = run_with(tmp_path, FALLING, [4, 3, 3.2, 3.5], [3.9, 2.5, 1.5, 0.8])
    for held_out, said in (
        (256, "Only 256 tokens could be set aside"),
        (5000, "The loss of unseen text was"),
    ):
        data = dataclasses.replace(run.data, held_out_tokens=held_out)
        [found] = findings(History(dataclasses.replace(run, data=data)))
        assert found.text.startswith(said)


@pytest.mark.parametrize(
    ("is_chat", "text", "advice"),
    [
        (False, "The key is in the drawer of the old table. " * 4, "more text"),
        (
            True,
            "The key is in the drawer of the old table. " * 4,
            "more conversations about",
        ),
        (True, "Der Schlüssel liegt in der Schublade. " * 8, "more conversations about"),
    ],
)
def test_a_little_text_is_told_what_to_try_next(
    tmp_path: Path, is_chat: bool, text: str, advice: str
) -> None:
    run = run_with(tmp_path, FALLING, [4, 3, 3.2, 3.5], [3.9, 2.5, 1.5, 0.8])
    run.add_samples(100, [("Wo?", text)])
    data = dataclasses.replace(run.data, held_out_tokens=57, chat=is_chat)
    [found, *of_size] = findings(History(dataclasses.replace(run, data=data)))
    assert len(of_size) == (not is_chat) and found.remedy.startswith(advice)
    assert ("--init models/default" in found.remedy) == (is_chat and text.startswith("The"))


@pytest.mark.parametrize(
    ("preset", "is_chat", "me", "to_try", "remedy"),
    [
        ("tiny", True, {}, "Ask it what it should know.", "more conversations about"),
        ("tiny", True, {"me": "Ann"}, "Write to it what people wrote", "more of these chats"),
        ("tiny", False, {}, "Let it go on with a beginning", "more text"),
        ("translator", False, {}, "Have it translate sentences", "more pairs of sentences"),
    ],
)
def test_each_kind_of_text_gets_the_advice_that_fits_it(
    tmp_path: Path, preset: str, is_chat: bool, me: dict, to_try: str, remedy: str
) -> None:
    run = run_with(tmp_path, FALLING, [4, 3, 3.2, 3.5], **me)
    data = dataclasses.replace(run.data, held_out_tokens=57, chat=is_chat, n_bytes=LITTLE_BYTES)
    [found] = findings(History(dataclasses.replace(run, model=PRESETS[preset], data=data)))
    assert to_try in found.text and found.remedy.startswith(remedy)


GERMAN = "Der Schlüssel liegt in der Schublade. " * 8


@pytest.mark.parametrize(
    ("n_bytes", "is_chat", "is_imported", "text", "command"),
    [
        (77_000, False, False, "The key is in the drawer of the old table. " * 4, "smollm2-135m"),
        (77_000, False, False, GERMAN, "--list"),
        (500_000, False, False, GERMAN, None),
        (77_000, True, False, GERMAN, None),
        (77_000, False, True, GERMAN, None),
    ],
)
@pytest.mark.parametrize("held_out", [57, 5000])
def test_what_to_expect_of_a_little_plain_text_is_said_with_the_next_command(
    tmp_path: Path,
    n_bytes: int,
    is_chat: bool,
    is_imported: bool,
    text: str,
    command: str | None,
    held_out: int,
) -> None:
    """A newcomer's PDF of 77 kB babbled, whatever it began with, and nothing said why."""
    run = run_with(tmp_path, FALLING, [4, 3, 3.2, 3.5], [3.9, 2.5, 1.5, 0.8])
    run.add_samples(100, [("A", text)])
    data = dataclasses.replace(run.data, n_bytes=n_bytes, chat=is_chat, held_out_tokens=held_out)
    imported = Imported("a/b", "its own text")
    base = Base("models/a", "1f0c", imported) if is_imported else None
    found = findings(History(dataclasses.replace(run, data=data, base=base)))
    told = [one for one in found if "are little for a plain text" in one.text]
    assert [one.text.partition(" ")[0] for one in told] == ["77,000"] * bool(command)
    if command:
        assert f"python -m export fetch {command}" in told[0].remedy
        assert not any("models/default" in one.remedy for one in found)
    shorter = dataclasses.replace(run.train, steps=200)
    going_on = History(dataclasses.replace(run, data=data, train=shorter))
    assert not any(re.search("little|set aside", one.text) for one in findings(going_on))


def test_a_training_that_took_longer_than_it_was_given(tmp_path: Path) -> None:
    run = run_with(tmp_path / "a", FALLING, [4, 3, 2.5, 2.48], minutes="2")
    (run.path / "summary.json").write_text('{"seconds": 125}')
    assert findings(History(run)) == []
    (run.path / "summary.json").write_text('{"seconds": 160}')
    [found] = findings(History(run))
    assert found.text.startswith("The training took 2.7 minutes, not --minutes 2:")


@pytest.mark.parametrize("name", ["<b>mine</b>", "plain"])
def test_the_report_says_it_above_the_curves(tmp_path: Path, browser: Browser, name: str) -> None:
    run = run_with(tmp_path / name, FALLING, [4, 3, 3.2, 3.5], [3.9, 2.5, 1.5, 0.8])
    page = browser.new_page()
    page.goto(write_report(run).resolve().as_uri())
    text = page.locator("#findings").inner_text()
    assert "The loss of unseen text was lowest at step 50" in text
    assert "Try more text, or a start that knows more: --init models/default." in text
    page.close()
