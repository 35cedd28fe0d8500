"""What the loop says of its speed and time, by a clock of its own; and when its steps are over."""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from trained import Interrupted

import training.loop
import training.machine.memory
import training.run.clock
from gptcore.checks import UserError
from gptcore.config import PRESETS
from gptcore.nn import build_model, count_parameters
from gptcore.nn.checkpoint import MODEL
from gptcore.nn.gpt import whole_sequence
from gptcore.typed_json import as_json
from training.jobs.keeping import keep_before
from training.loop import train
from training.machine.processes import World
from training.machine.progress import EVERY_S
from training.report.findings import findings
from training.report.history import History
from training.report.report import facts
from training.run.clock import Clock
from training.run.config import TrainConfig
from training.run.directory import Run, Samples
from training.run.facts import RunData
from training.state import State, save_state

SMALL = dataclasses.replace(
    PRESETS["tiny"],
    vocab_size=64,
    n_layer=1,
    n_embd=16,
    n_head=2,
    n_kv_head=1,
    n_inner=16,
    block_size=8,
)
EVALUATION_S = 5.0


class Timed:
    """A task whose steps and evaluations take as many seconds as it says, on its own clock."""

    steps_per_epoch, tokens_per_step, world = 3.0, 2 * 8, World()

    def __init__(self, durations: Iterable[float]):
        self.durations: Iterator[float] = iter(durations)
        self.now = 1000.0

    def save(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        self.now += next(self.durations)
        tokens = torch.arange(step, step + 18).reshape(2, 9)
        return tokens[:, :-1], tokens[:, 1:]

    def logits(self, model: nn.Module, x: Tensor) -> Tensor:
        return model(**whole_sequence(x))[0]

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        self.now += EVALUATION_S
        return {"val_loss": 1.5, "bits_per_byte": 0.5}

    def samples(self, model: nn.Module) -> list[tuple[str, str]]:
        return [("Once", "upon a time")]


def new_run(path: Path, clock: Clock | None = None, **settings: object) -> Run:
    usual = {"batch_size": 2, "micro_batch_size": 2, "warmup_steps": 0, "dtype": "float32"}
    run = Run(SMALL, TrainConfig(**usual | settings), RunData("-", False, 1), clock, path=path)
    run.create()
    return run


def trained(
    run: Run, task: Timed | Interrupted, monkeypatch: pytest.MonkeyPatch, **options: object
):
    monkeypatch.setattr(training.run.clock, "time", SimpleNamespace(perf_counter=lambda: task.now))
    return train(run, task, **options)


def logged(run: Run, name: str) -> dict[int, float]:
    return {line["step"]: line[name] for line in run.metrics() if name in line}


def test_the_speed_is_that_of_the_last_steps_and_the_seconds_are_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation takes time and is none of the steps' speed."""
    run = new_run(tmp_path, steps=6, log_every=2, eval_every=4)
    summary = trained(run, Timed([1, 2, 3, 4, 5, 6]), monkeypatch)
    speeds = {2: round(32 / 3), 4: round(32 / 7), 6: round(32 / 11)}
    assert logged(run, "tokens_per_s") == speeds
    assert logged(run, "seconds") == {2: 3, 4: 10, 6: 21 + EVALUATION_S}
    assert logged(run, "tokens") == {2: 32, 4: 64, 6: 96}
    assert summary["seconds"] == 21 + 2 * EVALUATION_S and summary["tokens"] == 96
    assert summary["data"] == as_json(run.data) and summary["bits_per_byte"] == 0.5


def test_a_resumed_run_goes_on_counting_its_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path, steps=5, log_every=1, eval_every=5)
    assert trained(run, Interrupted(Timed([1, 2, 3]), 3), monkeypatch) is None
    summary = trained(run, Timed([4, 5]), monkeypatch, resume=True)
    assert logged(run, "seconds") == {1: 1, 2: 3, 3: 6, 4: 10, 5: 15}
    assert summary["seconds"] == 15 + EVALUATION_S


def test_the_bar_says_that_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a large model that may take minutes, in which the step stays what it is."""
    task = Timed(repeat(1.0))
    run = new_run(tmp_path, steps=4, eval_every=2)
    shown = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        shown.append(capsys.readouterr().err.split("\r")[-1])
        return Timed.evaluate(task, model)

    monkeypatch.setattr(task, "evaluate", evaluate)
    trained(run, task, monkeypatch)
    assert [said.partition(":")[0] for said in shown] == ["measuring"] * 2
    assert "2/4" in shown[0] and "4/4" in shown[1]
    assert "measuring" not in capsys.readouterr().err.split("\r")[-1]


def compiling() -> Iterator[float]:
    """The first step of a process takes seven seconds, each other one a second."""
    return chain([7.0], repeat(1.0))


@pytest.mark.parametrize("pause", [None, 5])
def test_a_run_with_a_time_takes_just_that_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pause: int | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the first step takes longer is no sign of the speed of the others."""
    clock = Clock(budget_s=40.0, evaluation_steps=EVALUATION_S)
    run = new_run(tmp_path, clock, steps=1000, decay_share=0.5, eval_every=1000, log_every=1)
    if pause:
        assert trained(run, Interrupted(Timed(compiling()), pause), monkeypatch) is None
    summary = trained(run, Timed(compiling()), monkeypatch, resume=bool(pause))
    assert summary["seconds"] == clock.budget_s
    assert summary["steps"] == (23 if pause else 29) == max(logged(run, "loss"))
    fitted = Run.load(run.path)
    assert fitted.clock is None and fitted.train.steps == summary["steps"]
    assert fitted.train.decay_share == pytest.approx(15 / summary["steps"])
    assert (
        f"the machine processes {Timed.tokens_per_step:,} tokens/s: {summary['steps']} steps fit "
        f"the time, instead of the planned 1,000: {summary['steps'] / 3:.1f} passes over the text"
    ) in capsys.readouterr().out


def test_the_weights_before_are_mixed_into_the_last_step_that_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock made the steps fewer than those of the run that began."""
    clock = Clock(budget_s=40.0, evaluation_steps=EVALUATION_S)
    run = new_run(tmp_path, clock, steps=1000, decay_share=0.5, eval_every=1000, keep=0.5)
    task = Timed(compiling())
    summary = trained(run, task, monkeypatch)
    before = {name: torch.zeros_like(p) for name, p in build_model(SMALL).named_parameters()}
    own = Run.load(run.path).newest_checkpoint().model
    mixed = keep_before(summary, run, task, before)
    assert mixed["kept"] == 0.5 and mixed["steps"] == 29
    best = Run.load(run.path).best_checkpoint()
    assert best.facts["step"] == 29 and max(Run.load(run.path).evaluations()) == 29
    assert all(torch.equal(mean, own[name] / 2) for name, mean in best.model.items())


def test_the_weights_before_are_mixed_into_the_best_step_and_the_report_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = new_run(tmp_path, steps=4, eval_every=2, keep=0.5)
    task, losses = Timed(repeat(1.0)), iter([1.5, 2.5, 1.5, 1.6])

    def evaluate(model: nn.Module) -> dict[str, float]:
        loss = next(losses)
        return {"val_loss": loss, "bits_per_byte": loss / 2}

    monkeypatch.setattr(task, "evaluate", evaluate)
    summary = trained(run, task, monkeypatch)
    said = "the weights of step 2 are taken: 0.7500 bits per byte of unseen text\n"
    assert said in capsys.readouterr().out
    own, last = run.best_checkpoint(), run.newest_checkpoint()
    before = {name: torch.zeros_like(p) for name, p in build_model(SMALL).named_parameters()}
    with pytest.raises(
        UserError, match=r"has keep=0.5, but does not name the weights .*: train it"
    ):
        keep_before(summary, run, task)
    losses = chain([1.5], losses)
    assert keep_before(summary, run, task, before)["bits_per_byte"] == 0.8
    best = run.best_checkpoint()
    assert best.path.name == own.path.name == "step-2" and best.facts == own.facts | {"kept": 0.5}
    assert all(torch.equal(mean, own.model[name] / 2) for name, mean in best.model.items())
    ended = run.newest_checkpoint()
    assert last.path.name == ended.path.name == "step-4" and last.facts == ended.facts
    assert all(torch.equal(weights, last.model[name]) for name, weights in ended.model.items())
    found, _ = findings(History(run))
    assert "lowest at step 2 (0.75 bits" in found.text
    row = facts(History(run))
    assert row["weights"] == "of step 2, with 50% of those before the training"
    assert row["bits per byte of unseen text"] == "0.8000"


def test_a_complete_run_that_goes_on_from_an_earlier_step_is_complete_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path, steps=4, eval_every=2)
    trained(run, Timed(repeat(1.0)), monkeypatch)
    (run.checkpoints / "step-4" / MODEL).write_bytes(b"damaged")
    assert run.is_complete
    assert trained(run, Interrupted(Timed(repeat(1.0)), 1), monkeypatch, resume=True) is None
    assert not run.is_complete


def test_what_mixing_costs_is_measured_as_the_training_measured_and_against_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own figures may be missing, or of another device or precision."""
    run = new_run(tmp_path, steps=2, eval_every=2, keep=0.5, dtype="bfloat16")
    run = dataclasses.replace(run, options={"init": "models/before"})
    task, losses, in_bfloat16 = Timed(repeat(1.0)), iter([1.5, 1.4, 1.6, 1.6, 1.6]), []

    def evaluate(model: nn.Module) -> dict[str, float]:
        in_bfloat16.append(torch.is_autocast_enabled("cpu"))
        return {"val_loss": next(losses), "bits_per_byte": 0.5}

    monkeypatch.setattr(task, "evaluate", evaluate)
    summary = trained(run, task, monkeypatch)
    (run.path / "metrics.jsonl").unlink()
    before = {name: torch.zeros_like(p) for name, p in build_model(SMALL).named_parameters()}
    assert keep_before(summary, run, task, before)["kept"] == 0.0
    said = "even 12% of them would raise the loss of the unseen text by 0.063 bits per byte, and 0."
    assert said in capsys.readouterr().out
    assert in_bfloat16 == [True] * 5


def test_a_time_that_the_first_step_uses_up_allows_two_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One to see how long a step takes, and one in which the rate falls."""
    run = new_run(tmp_path, Clock(7.0, EVALUATION_S), steps=1000, decay_share=0.5, eval_every=1000)
    assert trained(run, Timed(compiling()), monkeypatch)["steps"] == 3


def test_an_evaluation_that_was_timed_counts_for_those_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(budget_s=40.0, evaluation_steps=0.001)
    run = new_run(tmp_path, clock, steps=1000, decay_share=0.5, eval_every=10, log_every=1)
    summary = trained(run, Timed(compiling()), monkeypatch)
    assert list(run.evaluations()) == [10, summary["steps"]]
    # 21 s are over after 10 steps; of the 14 s before the last evaluation each step takes 1.5
    assert summary["steps"] == 10 + 9 and summary["seconds"] == 21 + 9 + EVALUATION_S


def test_the_checkpoint_of_an_evaluation_is_timed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow disk it takes as long as the evaluation itself."""
    task = Timed(compiling())

    def slowly(run: Run, state: State) -> None:
        save_state(run, state)
        task.now += 4.0

    monkeypatch.setattr(training.loop, "save_state", slowly)
    clock = Clock(budget_s=60.0, evaluation_steps=0.001)
    run = new_run(tmp_path, clock, steps=1000, decay_share=0.5, eval_every=10, log_every=1)
    summary = trained(run, task, monkeypatch)
    # 25 s are over after 10 steps, 30 s after 15; of the 21 s before the last nine a step takes 1.9
    assert summary["steps"] == 15 + 11 and summary["seconds"] == 30 + 11 + 9 + 9


def test_a_run_begins_by_saying_what_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(new_run(tmp_path, steps=1), Timed([1]), monkeypatch)
    said = capsys.readouterr()
    n = count_parameters(build_model(SMALL))
    assert f"{n:,} parameters on cpu in float32; 16 tokens per step\n" in said.out
    assert "\nthe loss is in bits per byte of text: the lower, the better" in said.out
    assert "step 1: 0.5000 bits per byte of unseen text\n  'Once' -> 'upon a time'" in said.out
    assert ", 16 tokens/s]" in said.err


def test_the_bar_tells_the_loss_in_the_unit_of_the_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a text the bytes of a token are known; of a translation not before an evaluation."""
    monkeypatch.setenv(EVERY_S, "1e-6")
    for name, n_tokens, first in (("text", 7, "bits per byte"), ("pairs", None, "nats per token")):
        run = new_run(tmp_path / name, steps=4, eval_every=2, log_every=1, seed=1)
        data = dataclasses.replace(run.data, n_bytes=10, n_tokens=n_tokens)
        run = dataclasses.replace(run, data=data)
        trained(run, Timed(repeat(1.0)), monkeypatch)
        said = re.findall(r"loss ([\d.]+) ([a-z ]+), ", capsys.readouterr().err)
        told = dict.fromkeys(said)  # each once, in order
        losses = [*logged(run, "loss").values()]
        before = 7 / (10 * math.log(2)) if n_tokens else 1.0
        factors = [before, before, 0.5 / 1.5, 0.5 / 1.5]
        units = [first, first, "bits per byte", "bits per byte"]
        assert [*told] == [
            (f"{loss * factor:.3f}", unit) for loss, factor, unit in zip(losses, factors, units)
        ]


def test_the_opening_of_the_weights_is_shown_to_whoever_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(EVERY_S, "1")
    trained(new_run(tmp_path, steps=1), Timed([1]), monkeypatch)
    assert "opening the weights: 00:00" in capsys.readouterr().err


def test_a_loss_of_hardly_any_held_out_text_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, task = new_run(tmp_path, steps=1, keep=0.5), Timed(repeat(1.0))
    run = dataclasses.replace(run, data=dataclasses.replace(run.data, held_out_tokens=57))

    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"val_loss": 1.5, "bits_per_byte": 0.5, "train_loss": 0.25}

    monkeypatch.setattr(task, "evaluate", evaluate)
    summary = trained(run, task, monkeypatch)
    before = {name: torch.zeros_like(p) for name, p in build_model(SMALL).named_parameters()}
    keep_before(summary, run, task, before)
    said = capsys.readouterr().out
    # A third of it: 1.5 nats per token are 0.5 bits per byte of the other text, too.
    assert "step 1: 0.0833 bits per byte of the training text\n" in said
    assert "before the training: 0.0833 bits per byte of the training text (--set keep=0" in said
    assert "of unseen text" not in said and "0.5000" not in said


@pytest.mark.parametrize(
    ("asked", "free", "chosen"),
    [("auto", 10**3, "on"), ("auto", 10**9, "off"), ("on", 10**9, "on"), ("off", 10**3, "off")],
)
def test_blocks_are_computed_twice_where_memory_is_short_and_a_resume_does_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: str,
    free: int,
    chosen: str,
) -> None:
    monkeypatch.setattr(training.machine.memory, "free_memory", lambda device: free)
    run = new_run(tmp_path, steps=2, gradient_checkpointing=asked)
    assert trained(run, Interrupted(Timed([1]), 1), monkeypatch) is None
    assert ("computed twice" in capsys.readouterr().out) == (chosen == "on")
    assert Run.load(tmp_path).train.gradient_checkpointing == chosen


@pytest.mark.parametrize("pause", [None, 1])
def test_records_get_every_figure_and_are_closed_at_the_end_and_at_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: int | None
) -> None:
    class Kept:
        def __init__(self) -> None:
            self.steps, self.texts, self.n_closed = [], [], 0

        def figures(self, step: int, values: dict[str, float]) -> None:
            self.steps.append(step)

        def evaluation(self, step: int, measured: dict[str, float], samples: Samples) -> None:
            run.log(step=step, **measured)
            self.texts.append((step, samples))

        def close(self) -> None:
            self.n_closed += 1

    kept, run = Kept(), new_run(tmp_path, steps=2, log_every=1, eval_every=2)
    monkeypatch.setattr(training.loop, "Records", lambda *_: kept)
    task = Timed([1, 1])
    trained(run, Interrupted(task, pause) if pause else task, monkeypatch)
    assert kept.n_closed == 1
    assert kept.steps == ([1] if pause else [1, 2])
    assert kept.texts == ([] if pause else [(2, [("Once", "upon a time")])])


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_weights_that_are_read_no_more_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: float
) -> None:
    """They take as much memory as the model."""
    run = new_run(tmp_path, steps=2, keep=keep)
    initial = {name: p.detach().clone() for name, p in build_model(SMALL).named_parameters()}
    trained(run, Timed([1, 1]), monkeypatch, initial=initial)
    assert bool(initial) == bool(keep)
