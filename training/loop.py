"""The training loop.

    >>> run = Run.load("runs/mine")                                      # doctest: +SKIP
    >>> train(run, LanguageModelling(run, shards))                       # doctest: +SKIP

Each step is a pure function of the previous state and of (seed, step): the batch and dropout's
random numbers are computed from (seed, step). A resumed run therefore equals an uninterrupted
one: on a CPU bit for bit, on a GPU up to the order in which its kernels add.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor
from tqdm import tqdm

from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.nn import count_parameters
from gptcore.nn.checkpoint import Tensors
from gptcore.system.cores import say_if_busy
from gptcore.system.files import write_json
from gptcore.system.wording import counted
from gptcore.typed_json import as_json
from training.machine.devices import autocast, gpu_figures
from training.machine.flops import flops_per_token
from training.machine.interrupts import Interrupts, Paused
from training.machine.prefetch import Prefetch
from training.machine.processes import World
from training.machine.progress import progress, ticking, waiting
from training.report.findings import findings
from training.report.history import History
from training.report.records import Records
from training.report.report import write_report
from training.run.base import first_weights
from training.run.clock import Clock, Watch
from training.run.config import TrainConfig
from training.run.directory import Run, Samples
from training.state import (
    State,
    build_state,
    open_checkpoint,
    save_evidence,
    save_state,
    write_adapter,
)
from training.step import step

NAMES = {  # of the figures of an evaluation, for people
    "bits_per_byte": "bits per byte of unseen text",
    "train_loss": "bits per byte of the training text",
    "recall": "of the replies known word for word",
    "bleu": "BLEU",
    "chrf": "chrF",
}
MAX_BAD_STEPS = 3  # consecutive steps without a finite loss and gradient that end a run


class Task(Protocol):
    """What the model learns; training.tasks implements language modelling and translation."""

    world: World  # the processes that train together
    steps_per_epoch: float
    tokens_per_step: float

    def save(self, folder: Path) -> None:
        """Write the task's own files, such as tokenizers, into the run directory."""

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """Return this process's part of the batch: the model's inputs, then the targets (B, T).

        Targets are IGNORED at positions without a loss. For a GPU a thread calls it, one step
        ahead, so it must use no global random state and talk to no other process.
        """

    @property
    def logits(self) -> Callable[..., Tensor]:
        """Return the logits (B, T, V)."""

    def evaluate(self, model: Any) -> dict[str, float]:
        """Measure the held-out split; return at least "val_loss" and "bits_per_byte"."""

    def samples(self, model: Any) -> Samples:
        """Return a few prompts, each with the model's continuation."""


def train(
    run: Run, task: Task, initial: Tensors | None = None, resume: bool = False
) -> dict[str, Any] | None:
    """Train to the last step and return the summary, or None if the run was paused.

    `initial`: weights to start from (fine-tuning); emptied, unless some are kept. Ctrl-C pauses
    it: the state is saved after the step. A step whose loss or gradient is not finite updates
    nothing. Raises UserError after MAX_BAD_STEPS such steps in a row, and if there is nothing to
    resume.
    """
    world, checkpoint = task.world, open_checkpoint(run) if resume else None
    with waiting("opening the weights"):
        if resume and run.train.lora:
            initial = first_weights(run)  # beside the adapters, which alone are in the checkpoint
        settings, state = build_state(run.model, run.train, world, checkpoint, initial)
        if initial and not run.train.keep:
            initial.clear()  # nobody reads them again, and they take as much memory as the model
    run = replace(run, train=settings)
    records = Records(run, world, state.step if resume else None)
    if world.is_first and resume:
        run.forget_after(state.step)
        run.write_config()  # with the settings that a resume may change
    elif world.is_first:
        task.save(run.path)  # last, so that a failed start leaves no files
        run.create()
    tell_start(run, task, state)
    try:
        with Interrupts() as interrupts:
            is_to_measure = resume and is_due(state.step, run.train.eval_every, run.train)
            if is_to_measure and state.step not in run.evaluations():
                with waiting("measuring"):
                    measure(run, task, state, records, interrupts)
            run = take_steps(run, task, state, records, interrupts)
    except Paused:
        print(f"saved step {state.step}")
        return None
    except BrokenPipeError:  # whoever read what is printed is gone, as `tee` after Ctrl-C
        if world.size == 1:
            save_state(run, state)
        raise
    finally:
        records.close()
    if world.is_first:
        finish(run, task, state)
    world.wait()  # for summary.json, from which every process goes on
    return run.summary()


def take_steps(run: Run, task: Task, state: State, records: Records, interrupts: Interrupts) -> Run:
    """Take all remaining steps; return the run, with `steps` fitted to the clock if it has one.

    Raises Paused after an interrupt, once the state is saved, and UserError after MAX_BAD_STEPS
    consecutive bad steps.
    """
    config, world = run.train, state.world
    watch = Watch(state.seconds, config.log_every)
    silent = not world.is_first
    bar = progress(total=config.steps, unit="step", initial=state.step, disable=silent, delay=0)
    batch_of = Prefetch(task.batch) if state.device.type == "cuda" else task.batch
    used, saving, measuring, history = "", False, False, History(run)
    with bar, ticking(bar):
        while state.step < config.steps:
            # The processes' clocks differ, so only a single process fits its steps to the clock.
            clock = run.clock if world.size == 1 and watch.n_steps else None
            if clock and clock.is_due(config, state.step, watch.seconds):
                run = fit_to_clock(run, task, clock, state.step, watch)
                config, bar.total = run.train, run.train.steps
            with watch.step():
                batch = batch_of(state.step)
                values = step(state, batch, task.logits, config)
                if state.bad_steps:
                    tell_bad_step(run, state, batch, values)
            state.seconds = watch.seconds
            speed = watch.speed(task.tokens_per_step)
            if is_due(state.step, config.log_every, config):
                figures = figures_of(run, task, state, speed)
                used = f", MFU {figures['mfu']:.0%}" if "mfu" in figures else ""
                records.figures(state.step, values | figures)
            loss = loss_told(values["loss"], history)
            bar.set_postfix_str(f"{loss}, {speed:,} tokens/s{used}", False)
            bar.update()
            measuring = measuring or is_due(state.step, config.eval_every, config)
            saving = saving or measuring or is_due(state.step, config.save_every, config)
            if state.bad_steps and state.step < config.steps:
                continue  # the weights may be broken: what is due is done after a good step
            pausing = world.any(interrupts.received)
            # An evaluation is timed with its checkpoint, as the clock plans for both of them.
            with watch.evaluation() if measuring else nullcontext():
                if pausing or saving:
                    save_state(run, state)
                if pausing and state.step < config.steps:
                    raise Paused
                if measuring:
                    bar.set_description("measuring")  # which may take as long as many steps
                    history = measure(run, task, state, records, interrupts)
                    bar.set_description()
            saving = measuring = False
            state.seconds = watch.seconds
    return run


def tell_start(run: Run, task: Task, state: State) -> None:
    """Print what is trained, on what."""
    world = state.world
    processes = f"{world.size} x " if world.size > 1 else ""
    print(
        f"{count_parameters(state.model):,} parameters on {processes}{state.device} in "
        f"{run.train.dtype}; {task.tokens_per_step:,.0f} tokens per step"
    )
    if not isinstance(run.model, Seq2SeqConfig):
        print("the loss is in bits per byte of text: the lower, the better the model foresees it")
    if run.train.gradient_checkpointing == "on":
        print("the blocks are computed twice, which saves memory (gradient_checkpointing)")
    if world.size == 1 and state.device.type == "cpu":  # several processes keep each other busy
        say_if_busy()


def figures_of(run: Run, task: Task, state: State, tokens_per_s: int) -> dict[str, float]:
    """Return what is logged beside the values of a step."""
    flops_per_s = None  # of a translator, whose sentences differ in length
    if not isinstance(run.model, Seq2SeqConfig):
        each = flops_per_token(run.model, run.row_tokens, run.train.lora)
        flops_per_s = each * tokens_per_s / state.world.size
    return {
        "tokens_per_s": tokens_per_s,
        "seconds": round(state.seconds, 3),
        "tokens": round(state.step * task.tokens_per_step),
        **gpu_figures(state.device, flops_per_s),
    }


def fit_to_clock(run: Run, task: Task, clock: Clock, done: int, watch: Watch) -> Run:
    """Return the run with as many steps as fit the time; config.json keeps them for a resume."""
    config = clock.fitted(run.train, done, watch.step_s, watch.evaluations, watch.seconds)
    if config.steps != run.train.steps:
        tqdm.write(
            f"the machine processes {task.tokens_per_step / watch.step_s:,.0f} tokens/s: "
            f"{counted(config.steps, 'step')} fit the time, instead of the planned "
            f"{run.train.steps:,}: {config.steps / task.steps_per_epoch:.1f} passes over the text"
        )
    run = replace(run, train=config, clock=None)
    run.write_config()
    return run


def is_due(step: int, every: int, config: TrainConfig) -> bool:
    """Return whether something is due: every `every` steps, and at the end, but not just before."""
    return step == config.steps or (step % every == 0 and config.steps - step >= every / 2)


def tell_bad_step(
    run: Run, state: State, batch: tuple[Tensor, ...], values: dict[str, float]
) -> None:
    """Report that the last step updated nothing; raise UserError after MAX_BAD_STEPS of them."""
    loss, norm = values["loss"], values["gradient_norm"]
    found = f"step {state.step}: loss {loss}, gradient norm {norm}"
    if state.bad_steps < MAX_BAD_STEPS:
        tqdm.write(f"{found}: not finite, so this step updates nothing")
        return
    save_evidence(run, state, batch, values)
    raise UserError(
        f"the last {MAX_BAD_STEPS} steps gave no finite loss or gradient ({found}): they updated "
        f"nothing, and all checkpoints are kept; {run.path / 'evidence'} holds the batch, weights "
        f"and gradient norms; train again on the texts, with another --out and a lower "
        f"learning_rate"
    )


def measure(
    run: Run, task: Task, state: State, records: Records, interrupts: Interrupts
) -> History:
    """Evaluate the model and write samples; return the history up to now.

    The step is saved already, so an interrupt raises Paused at once; but several processes go on
    to the next step, where they stop together, as none gets the signal when another one does.
    """
    with interrupts.at_once() if state.world.size == 1 else nullcontext():
        with autocast(state.device, state.dtype):
            measured = task.evaluate(state.model)
            samples = task.samples(state.model)
        records.evaluation(state.step, measured, samples)
    history = History(run)
    figures = told(history.telling(measured)) or "too little unseen text to measure"
    tqdm.write(f"step {state.step}: {figures}\n  {samples[0][0]!r} -> {samples[0][1]!r}")
    return history


def loss_told(loss: float, history: History) -> str:
    """Return the loss of a batch in bits per byte, as all others are told.

    Of a translator the bytes are unknown until its first evaluation. A smoothed loss is larger than
    what it would be compared with.
    """
    if history.run.train.label_smoothing:
        return f"smoothed loss {loss:.3f} nats per token"
    if math.isnan(history.bits_per_nat):
        return f"loss {loss:.3f} nats per token"
    return f"loss {loss * history.bits_per_nat:.3f} bits per byte"


def told(figures: dict[str, float]) -> str:
    """Return the figures of an evaluation in a line."""
    return ", ".join(f"{figures[key]:.4f} {name}" for key, name in NAMES.items() if key in figures)


def finish(run: Run, task: Task, state: State) -> None:
    """Write summary.json, which holds the last evaluation, and the report."""
    summary = {
        "steps": run.train.steps,
        "parameters": count_parameters(state.model),
        "tokens": round(run.train.steps * task.tokens_per_step),
        "seconds": round(state.seconds, 1),
        **run.evaluations().get(run.train.steps, {}),
        "data": as_json(run.data),
    }
    if run.train.lora:
        write_adapter(run)
    write_json(run.path / "summary.json", summary)  # it says that the run is complete
    write_report(run)
    history = History(run)
    if history.taken not in (None, run.train.steps):
        print(f"the weights of step {history.taken} are taken: {told(history.reached)}")
    for found in findings(history):
        print(found)
