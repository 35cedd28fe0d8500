"""Resuming: an interrupted run ends in the same bits as one that was never stopped."""

import dataclasses
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Refused
from trained import Interrupted, newest_checkpoint, quick_words, set_options

import gptcore.nn.checkpoint
import training.loop
import training.state
import training.step
from gptcore.checks import UserError
from gptcore.config import PRESETS
from gptcore.nn.checkpoint import MODEL, STATE
from gptcore.system.files import file_sha256, list_checkpoints
from gptcore.text.tokenizer import Tokenizer
from training.__main__ import main
from training.data.batches import Batches
from training.data.corpus import read_documents
from training.data.shards.folder import Shards, prepare
from training.data.sources import run_data_of
from training.formats.places import find_files
from training.loop import train
from training.machine.processes import join
from training.optim.optimizers import rate_factor
from training.run.config import TrainConfig
from training.run.directory import Run, begun
from training.run.lock import locked_run
from training.step import seed_of
from training.tasks.language import LanguageModelling

STEPS, PAUSE = 6, 3
CLOCK = ("tokens_per_s", "seconds")
INTERRUPTED, BROKEN_PIPE = 130, 141  # what a shell says of Ctrl-C, and of a reader that ended


@pytest.fixture(scope="module")
def shards(chats: Path, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    files = find_files([chats])
    folder = tmp_path_factory.mktemp("shards")
    return prepare(lambda: read_documents(files), folder, 512, tokenizer)


def new_run(path: Path, shards: Shards, **settings: object) -> Run:
    """A run whose every step depends on random numbers, moments, schedule and data."""
    model = dataclasses.replace(PRESETS["tiny"], n_layer=1, block_size=64, dropout=0.1)
    usual = {"batch_size": 4, "micro_batch_size": 2, "warmup_steps": 4, "log_every": 1}
    config = TrainConfig(**{"steps": STEPS, **usual, **settings})
    run = Run(model, config, run_data_of(shards, "chats"), path=path)
    LanguageModelling(run, shards).save(path)
    run.create()
    return run


def state_hash(run: Run) -> str:
    """Of all weights and moments after the last step."""
    (folder, *_), problems = newest_checkpoint(run.checkpoints)
    assert folder.name == f"step-{run.train.steps}" and not problems
    return hashlib.sha256((folder / MODEL).read_bytes() + (folder / STATE).read_bytes()).hexdigest()


def logged(run: Run) -> list[dict[str, float]]:
    """The metrics without what depends on the clock."""
    return [{k: v for k, v in m.items() if k not in CLOCK} for m in run.metrics()]


def continued(paused: Run, path: Path, shards: Shards) -> Run:
    """A copy of a paused run, trained to its end."""
    shutil.copytree(paused.path, path)
    run = Run.load(path)
    assert train(run, LanguageModelling(run, shards), resume=True)["steps"] == STEPS
    return run


BOTH = ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)]  # emulated on many CPUs


@pytest.fixture(scope="module", params=BOTH)
def both(
    request: pytest.FixtureRequest, shards: Shards, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, Run]:
    """A run without a pause, and one that was paused half way."""
    folder = tmp_path_factory.mktemp(request.param)
    whole = new_run(folder / "whole", shards, dtype=request.param)
    paused = new_run(folder / "paused", shards, dtype=request.param)
    assert train(whole, LanguageModelling(whole, shards))["steps"] == STEPS
    assert train(paused, Interrupted(LanguageModelling(paused, shards), PAUSE)) is None
    return whole, paused


in_float32 = pytest.mark.parametrize("both", ["float32"], indirect=True)


def test_a_resumed_run_ends_in_the_same_bits(
    both: tuple[Run, Run], shards: Shards, tmp_path: Path
) -> None:
    whole, paused = both
    resumed = continued(paused, tmp_path / "resumed", shards)
    assert state_hash(resumed) == state_hash(whole)
    assert logged(resumed) == logged(whole)
    assert (resumed.path / "samples.md").read_text() == (whole.path / "samples.md").read_text()


@in_float32
def test_what_memory_and_habit_want_may_change_in_a_resumed_run(
    both: tuple[Run, Run], shards: Shards, tmp_path: Path, refused: Refused
) -> None:
    whole, paused = both
    out = shutil.copytree(paused.path, tmp_path / "resumed")
    new = {"micro_batch_size": 1, "gradient_checkpointing": "on", "save_every": 2, "log_every": 2,
           "keep_checkpoints": 5}  # fmt: skip
    command = ["--out", str(out), "--resume", *set_options(**new)]
    assert "batch_size=8" in refused(main, *command, "--set", "batch_size=8")
    said = refused(main, *command, "--set", "micro_batch_size=3")
    assert "micro_batch_size=3 does not divide batch_size=4" in said, "not that of a preset"
    assert main(command) == 0
    run = Run.load(out)
    assert {name: getattr(run.train, name) for name in new} == new
    measured = [max(r.evaluations().items())[1]["val_loss"] for r in (run, whole)]
    assert measured[0] == pytest.approx(measured[1], abs=0.05)  # dropout draws other numbers
    assert len(list(run.checkpoints.iterdir())) == 3


def test_memory_that_is_not_enough_is_said_with_the_settings_that_need_less() -> None:
    words = (
        r"there is not enough memory \(.*can't allocate memory.*: set a smaller micro_batch_size"
    )
    with pytest.raises(UserError, match=words), join(60):
        torch.empty(1 << 60, dtype=torch.uint8)
    of_windows = "DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."
    with (
        pytest.raises(UserError, match=r"there is not enough memory \(.*: not enough memory"),
        join(60),
    ):
        raise RuntimeError(of_windows)
    with pytest.raises(UserError, match=r"not enough memory \(CUDA out of memory\)"), join(60):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_a_resume_with_settings_alone_starts_no_run(
    shards: Shards, tmp_path: Path, refused: Refused
) -> None:
    """As the advice of the test above gives them, to a run that has no checkpoint yet."""
    run = new_run(tmp_path / "run", shards)
    before = (run.path / "config.json").read_bytes()
    resume = ["--resume", "--set", "micro_batch_size=1", "--out"]
    assert "there is none yet, train first" in refused(main, *resume, run.path)
    assert "no training run at" in refused(main, *resume, tmp_path / "runn")
    assert (run.path / "config.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@in_float32
def test_another_seed_ends_in_other_bits(
    both: tuple[Run, Run], shards: Shards, tmp_path: Path
) -> None:
    whole, _ = both
    other = new_run(tmp_path / "other", shards, dtype=whole.train.dtype, seed=2)
    train(other, LanguageModelling(other, shards))
    assert state_hash(other) != state_hash(whole)


@pytest.mark.parametrize("left_out", ["random numbers", "moments", "schedule", "data"])
def test_without_one_part_of_the_state_the_bits_differ(
    both: tuple[Run, Run],
    shards: Shards,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    left_out: str,
) -> None:
    order = Batches.order
    match left_out:
        case "random numbers":
            late = lambda seed, step, rank: seed_of(seed, step - PAUSE, rank)  # noqa: E731
            monkeypatch.setattr(training.step, "seed_of", late)
        case "moments":
            monkeypatch.setattr(training.state, "load_optimizer_tensors", lambda *_: None)
        case "schedule":
            late = lambda step, *settings: rate_factor(step - PAUSE, *settings)  # noqa: E731
            monkeypatch.setattr(training.step, "rate_factor", late)
        case "data":
            late = lambda batches, step: order(batches, step - PAUSE)  # noqa: E731
            monkeypatch.setattr(Batches, "order", late)
    whole, paused = both
    resumed = continued(paused, tmp_path / "resumed", shards)
    assert state_hash(resumed) != state_hash(whole)


@in_float32
@pytest.mark.slow
def test_after_damage_a_run_goes_on_from_the_checkpoint_before(
    both: tuple[Run, Run], shards: Shards, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = new_run(tmp_path / "run", shards, dtype="float32", save_every=2, eval_every=4)
    train(run, Interrupted(LanguageModelling(run, shards), 4))
    weights = run.checkpoints / "step-4" / MODEL
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 16
    weights.write_bytes(data)
    capsys.readouterr()
    train(run, LanguageModelling(run, shards), resume=True)
    said = capsys.readouterr().out
    assert f"skipped: {weights} is damaged" in said
    assert f"resuming from {run.checkpoints / 'step-2'}" in said
    assert state_hash(run) == state_hash(both[0])
    # What is done again is noted once.
    assert [m["step"] for m in run.metrics() if "loss" in m] == [1, 2, 3, 4, 5, 6]
    assert [m["step"] for m in run.metrics() if "val_loss" in m] == [4, 6]
    assert [step for step, _ in run.samples()] == [4, 6]


def test_damaged_checkpoints_do_not_take_the_place_of_sound_ones(
    shards: Shards, tmp_path: Path
) -> None:
    run = new_run(tmp_path / "run", shards, save_every=1, keep_checkpoints=2)
    assert train(run, Interrupted(LanguageModelling(run, shards), 4)) is None
    (run.checkpoints / "step-4" / MODEL).write_bytes(b"damaged")
    copies = {"step-4-good", "my-step-4"}  # somebody's own
    for name in ("step-5", "step-99999", ".step-98.tmp", *copies):
        shutil.copytree(run.checkpoints / "step-4", run.checkpoints / name)
    task = Interrupted(LanguageModelling(run, shards), 2)  # from step 3, the newest sound one
    assert train(run, task, resume=True) is None
    assert {path.name for path in run.checkpoints.iterdir()} == {"step-4", "step-5"} | copies
    assert newest_checkpoint(run.checkpoints)[1] == []


def test_a_checkpoint_that_a_kill_left_aside_is_put_back(
    both: tuple[Run, Run], tmp_path: Path
) -> None:
    """As between the two renames by which new weights replace those of a step."""
    out = shutil.copytree(both[1].path, tmp_path / "run")
    [saved] = list_checkpoints(out / "checkpoints")
    saved.rename(saved.with_name(f".{saved.name}.old"))
    assert not begun(out)
    with locked_run(out, is_first=True):
        assert list_checkpoints(out / "checkpoints") == [saved] and begun(out)


def test_checkpoints_of_this_process_are_not_hashed_at_each_save(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have gigabytes. What was there before is hashed once."""
    run = new_run(tmp_path / "run", shards, save_every=1, keep_checkpoints=2)
    train(run, Interrupted(LanguageModelling(run, shards), 2))
    hashed: list[str] = []

    def noting(path: Path) -> str:
        hashed.append(path.parent.name)
        return file_sha256(path)

    monkeypatch.setattr(gptcore.nn.checkpoint, "file_sha256", noting)
    train(run, LanguageModelling(run, shards), resume=True)
    saved = [f".step-{step}.tmp" for step in range(3, STEPS + 1)]
    assert sorted(hashed) == sorted(2 * ["step-2", *saved])


@in_float32
def test_a_metrics_file_that_breaks_off_in_a_line_does_not_hinder(
    both: tuple[Run, Run], shards: Shards, tmp_path: Path
) -> None:
    whole, paused = both
    shutil.copytree(paused.path, tmp_path / "torn")
    with open(tmp_path / "torn" / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "lo}\n\0\0}\n{"step": 4, "loss": 3}}\n{"step": 4, "lo')
    run = Run.load(tmp_path / "torn")
    train(run, LanguageModelling(run, shards), resume=True)
    assert logged(run) == logged(whole)


@in_float32
def test_samples_that_look_like_headings_do_not_hinder(
    both: tuple[Run, Run], tmp_path: Path
) -> None:
    run = Run.load(shutil.copytree(both[1].path, tmp_path / "copy"))
    run.log(step=PAUSE - 1, bits_per_byte=1.0)
    run.add_samples(PAUSE - 1, [("How?", "So:\n## Step by step\r\n\n## Step 9\n\r## Step 8\n")])
    before = (run.path / "samples.md").read_bytes()
    run.forget_after(PAUSE)
    assert (run.path / "samples.md").read_bytes() == before


@in_float32
@pytest.mark.slow
@pytest.mark.parametrize("steps", [STEPS, STEPS + 3])  # the last evaluation, and one before it
def test_an_evaluation_ends_at_once_and_is_made_up_for(
    both: tuple[Run, Run],
    shards: Shards,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
) -> None:
    run = new_run(tmp_path / "run", shards, dtype="float32", steps=steps, eval_every=STEPS)
    evaluate = LanguageModelling.evaluate
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModelling, "evaluate", lambda *_: signal.raise_signal(signal.SIGTERM))
        assert train(run, LanguageModelling(run, shards)) is None
    assert newest_checkpoint(run.checkpoints)[0].facts["step"] == STEPS
    assert not run.evaluations() and not run.is_complete

    task, seen = LanguageModelling(run, shards), []
    monkeypatch.setattr(
        LanguageModelling, "evaluate", lambda *args: seen.append(args) or evaluate(*args)
    )
    assert train(run, task, resume=True)["steps"] == steps
    assert list(run.evaluations()) == sorted({STEPS, steps}) and len(seen) == len({STEPS, steps})
    if steps == STEPS:
        assert state_hash(run) == state_hash(both[0]) and logged(run) == logged(both[0])


@in_float32
def test_a_complete_run_is_not_resumed(both: tuple[Run, Run], shards: Shards) -> None:
    before = state_hash(both[0])
    with pytest.raises(UserError, match="is complete already"):
        train(both[0], LanguageModelling(both[0], shards), resume=True)
    assert state_hash(both[0]) == before


@in_float32
def test_a_damaged_summary_is_written_again(
    both: tuple[Run, Run], shards: Shards, tmp_path: Path
) -> None:
    run = Run.load(shutil.copytree(both[0].path, tmp_path / "copy"))
    (run.path / "summary.json").write_text('{"steps": ')
    assert not run.is_complete
    train(run, LanguageModelling(run, shards), resume=True)
    assert run.summary()["val_loss"] == both[0].summary()["val_loss"]


LONG = {"dropout": 0.1, "steps": 60}


def started(out: Path, chats: Path, **changed: int) -> subprocess.Popen:
    """A real training process that has logged some steps."""
    process = subprocess.Popen(
        [sys.executable, "-m", "training", *quick_words(chats, out, **LONG | changed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = out / "metrics.jsonl"
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= 3:
            break
        time.sleep(0.01)
    return process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code"),
    [([], BROKEN_PIPE), ([signal.SIGINT], BROKEN_PIPE), (2 * [signal.SIGHUP], INTERRUPTED)],
    ids=["ended", "interrupted", "closed"],
)
def test_nothing_is_lost_where_the_reader_of_the_output_ends(
    chats: Path, tmp_path: Path, sent: list[signal.Signals], code: int
) -> None:
    """As `head` when it has enough, `tee` with Ctrl-C, and a closed terminal; shells send SIGHUP
    twice."""
    process = started(tmp_path / "run", chats, steps=1000)
    for stream in (process.stdout, process.stderr):
        stream.close()
    for number in sent:
        process.send_signal(number)
    assert process.wait(120) == code
    newest, _ = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert 3 <= newest.facts["step"] < 1000
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
def test_ctrl_c_saves_says_how_to_go_on_and_the_end_is_the_same(
    chats: Path, tmp_path: Path
) -> None:
    process = started(tmp_path / "stopped", chats)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == INTERRUPTED and "Traceback" not in err, err
    step = newest_checkpoint(tmp_path / "stopped" / "checkpoints")[0].facts["step"]
    assert 3 <= step < 60
    advice = (
        f"saved step {step}\nto continue: python -m training --out {tmp_path / 'stopped'} --resume"
    )
    assert advice in out
    assert not (tmp_path / "stopped" / "summary.json").exists()

    arguments = advice.split("training ")[1].split()
    assert main(arguments) == 0
    assert (tmp_path / "stopped" / "summary.json").exists()
    assert main(quick_words(chats, tmp_path / "whole", **LONG)) == 0
    stopped, whole = Run.load(tmp_path / "stopped"), Run.load(tmp_path / "whole")
    assert state_hash(stopped) == state_hash(whole)
    assert logged(stopped) == logged(whole)


def test_ctrl_c_before_the_first_step_ends_without_a_traceback(
    chats: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("training.jobs.options.prepare", interrupted)
    assert main([str(chats), "--out", str(tmp_path / "out")]) == INTERRUPTED
    told = capsys.readouterr().err
    assert told.endswith("\nstopped; no checkpoint was saved yet: start again\n")
    assert not (tmp_path / "out").exists()


def test_ctrl_c_before_a_run_goes_on_names_the_checkpoints_that_it_has(
    shards: Shards,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = new_run(tmp_path / "run", shards)
    (run.checkpoints / "step-3").mkdir(parents=True)
    stop = "training.jobs.language.shards_of"
    monkeypatch.setattr(stop, lambda _: signal.raise_signal(signal.SIGINT))
    assert main(["--out", str(run.path), "--resume"]) == INTERRUPTED
    kept = f"the checkpoints in {run.path} are kept: add --resume to go on from the last"
    assert capsys.readouterr().err.endswith(f"\nstopped; {kept}\n")


def test_a_run_that_is_named_as_a_text_or_not_at_all_is_asked_for(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused(main, "--resume")
    assert said.endswith("no training run at runs/mine, the default of --out: name one, --out RUN")
    for name in ("a", "b c"):
        run = new_run(Path("runs") / name, shards)
        (run.checkpoints / "step-3").mkdir(parents=True)
    new_run(Path("runs/begun"), shards)  # it has nothing to go on from
    os.utime("runs/a", (1, 1))
    assert refused(main, "--resume").endswith(": name one, --out 'runs/b c' or --out runs/a")
    said = refused(main, "runs/a", "--resume")
    assert said.endswith(
        "runs/a is a training run, not a text: did you mean --out runs/a --resume?"
    )
