"""The one step of the loop, the pilot and the benchmark: gradients, clipping, random numbers,
precision, and what happens where a loss or a gradient is not finite."""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from trained import newest_checkpoint, quick_words

import training.machine.devices
import training.step
from gptcore.checks import UserError
from gptcore.config import PRESETS
from gptcore.nn import build_model
from gptcore.nn.checkpoint import MODEL
from gptcore.nn.gpt import whole_sequence
from gptcore.system.files import list_checkpoints, step_of
from training.__main__ import main
from training.data.rows import IGNORED
from training.data.shards.folder import load_shards
from training.evaluation.validation import evaluating
from training.loop import train
from training.machine.devices import pick_dtype
from training.machine.processes import World
from training.run.config import TrainConfig
from training.run.directory import Run
from training.state import State
from training.step import accumulate_gradients, step
from training.tasks.language import LanguageModelling

SMALL = dataclasses.replace(PRESETS["tiny"], n_layer=2, block_size=64)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def short_run(chats: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Six steps; a copy with another path can be trained anew."""
    out = tmp_path_factory.mktemp("step") / "run"
    assert main(quick_words(chats, out, steps=6, eval_every=3, save_every=2)) == 0
    return Run.load(out)


def logits_of(model: torch.nn.Module, x: Tensor) -> Tensor:
    return model(**whole_sequence(x))[0]


def gradients(
    model: torch.nn.Module, batch: tuple[Tensor, Tensor], micro_batch: int, world: World = World()
) -> tuple[float, list[Tensor]]:
    """The loss and the gradients of a batch, of which this process has its part."""
    model.zero_grad()
    config = TrainConfig(batch_size=len(batch[0]) * world.size, micro_batch_size=micro_batch)
    state = State(model, model, [], CPU, torch.float32, world)
    loss = accumulate_gradients(state, batch, logits_of, config)
    return loss, [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("n_ignored", [0, 130])
def test_gradients_do_not_depend_on_the_micro_batches(n_ignored: int) -> None:
    torch.manual_seed(0)
    model = build_model(SMALL)
    x = torch.randint(0, 512, (4, 64))
    y = torch.randint(0, 512, (4, 64))
    y.view(-1)[:n_ignored] = IGNORED  # two sequences and more without targets

    whole, parts = (gradients(model, (x, y), micro_batch) for micro_batch in (4, 1))
    logits = logits_of(model, x)
    mean = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=IGNORED).item()
    assert whole[0] == pytest.approx(mean, abs=1e-5) == pytest.approx(parts[0], abs=1e-5)
    for a, b in zip(whole[1], parts[1]):
        assert a.abs().max() > 1e-4
        assert (a - b).abs().max() < 1e-5


def test_the_mean_of_all_processes_gradients_is_the_gradient_of_the_whole_batch() -> None:
    """Two processes have equal halves here, so each one's gradient is their mean."""

    class Twin(World):
        def sum(self, *values: float) -> list[float]:
            return [2 * value for value in values]

    torch.manual_seed(0)
    model = build_model(SMALL)
    x, y = torch.randint(0, 512, (2, 2, 64))
    alone, half = (gradients(model, (x, y), 1, world) for world in (World(), Twin(size=2)))
    assert half[0] == pytest.approx(alone[0], abs=1e-6)
    for a, b in zip(alone[1], half[1]):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("n_ignored", [0, 130, 256])
@pytest.mark.parametrize("multiple, n_filled", [(1, 0), (100, 74)])
def test_the_head_computes_few_positions_that_are_not_learned_with_the_same_gradients(
    n_ignored: int, multiple: int, n_filled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.step, "ROWS", multiple)
    torch.manual_seed(0)
    model = build_model(SMALL)
    x, y = torch.randint(0, 512, (2, 4, 64))
    y.view(-1)[:n_ignored] = IGNORED
    logits = logits_of(model, x).flatten(0, 1)
    loss = F.cross_entropy(logits, y.flatten(), ignore_index=IGNORED, reduction="sum")
    (loss / max(1, 256 - n_ignored)).backward()
    expected = [p.grad.clone() for p in model.parameters()]
    seen: list[int] = []
    model.head.register_forward_hook(lambda _, inputs, output: seen.append(len(output)))
    gradients(model, (x, y), 4)
    assert seen == [256 - n_ignored + (n_filled if n_ignored == 130 else 0)]
    for parameter, gradient in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)


def sgd_state(dropout: float = 0.0, rank: int = 0) -> State:
    """Of a model whose every update is the gradient times the rate."""
    torch.manual_seed(0)
    model = build_model(dataclasses.replace(SMALL, dropout=dropout)).train()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.0)]
    return State(model, model, optimizers, CPU, torch.float32, World(rank))


def random_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randint(0, SMALL.vocab_size, (2, 4, 64), generator=generator)
    return x, y


@pytest.mark.parametrize("share", [0.1, 10.0])
def test_a_gradient_is_clipped_to_the_limit_and_a_smaller_one_is_not(share: float) -> None:
    config = TrainConfig(batch_size=4, micro_batch_size=4, warmup_steps=0, learning_rate=0.5)
    norm = step(sgd_state(), random_batch(), logits_of, config)["gradient_norm"]
    state = sgd_state()
    before = [p.detach().clone() for p in state.model.parameters()]
    step(state, random_batch(), logits_of, dataclasses.replace(config, grad_clip=share * norm))
    moved = [p.detach() - old for p, old in zip(state.model.parameters(), before)]
    length = torch.nn.utils.get_total_norm(moved).item()
    assert length == pytest.approx(0.5 * norm * min(1.0, share), rel=1e-3)


def test_each_process_and_each_step_draws_its_own_random_numbers() -> None:
    config = TrainConfig(batch_size=4, micro_batch_size=4, learning_rate=0.0)

    def loss(rank: int, number: int, dropout: float = 0.5) -> float:
        state = sgd_state(dropout, rank)
        state.step = number
        return step(state, random_batch(), logits_of, config)["loss"]

    different = {loss(rank, number) for rank in (0, 1, 2) for number in (0, 1)}
    assert len(different) == 6 and loss(1, 1) in different
    assert loss(0, 0, dropout=0.0) == loss(1, 1, dropout=0.0)


def huge_rate_at(step: int) -> Callable[..., float]:
    return lambda at, *_: 1e38 if at == step else 0.01


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_checkpoint(
    chats: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(training.step, "rate_factor", huge_rate_at(2))
    assert main(quick_words(chats, tmp_path / "run", steps=9, save_every=2, eval_every=9)) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("error: the last 3 steps gave no finite loss or gradient (step 6: ")
    assert "train again on the texts, with another --out and a lower learning_rate" in message
    checkpoint, problems = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint.path.name == "step-2" and problems == []
    assert all(t.isfinite().all() for t in checkpoint.model.values())


def train_spoilt(
    run: Run, monkeypatch: pytest.MonkeyPatch, spoil: str, steps: set[int]
) -> list[Tensor]:
    """Train a run whose loss or gradient is not finite in some steps; the first matrix of the
    model before each update."""
    seen: list[Tensor] = []

    def spoilt(state: State, *rest: object) -> float:
        model = state.network
        loss = accumulate_gradients(state, *rest)
        seen.append(model.embed.weight.detach().clone())
        if spoil == "gradient" and len(seen) in steps:
            model.norm.weight.grad[3] = float("inf")
        return float("nan") if spoil == "loss" and len(seen) in steps else loss

    monkeypatch.setattr(training.step, "accumulate_gradients", spoilt)
    train(run, LanguageModelling(run, load_shards(Path(run.data.shards))))
    return seen


@pytest.mark.parametrize("spoil", ["loss", "gradient"])
def test_a_step_that_is_not_finite_updates_nothing_and_the_next_goes_on(
    short_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    run = dataclasses.replace(short_run, path=tmp_path)
    first, second, third, fourth, *_ = train_spoilt(run, monkeypatch, spoil, {2})
    assert torch.equal(second, third)
    assert not torch.equal(first, second) and not torch.equal(third, fourth)
    assert run.is_complete


@pytest.mark.parametrize(("spoil", "last"), [("loss", 6), ("gradient", 4)])
def test_three_of_them_in_a_row_end_the_run_and_the_evidence_is_kept(
    short_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str, last: int
) -> None:
    run = dataclasses.replace(short_run, path=tmp_path)
    with pytest.raises(UserError, match=rf"last 3 steps gave no finite loss .*\(step {last}: loss"):
        train_spoilt(run, monkeypatch, spoil, {last - 2, last - 1, last})
    assert not run.is_complete
    folder = tmp_path / "evidence" / f"step-{last}"
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    bad = [name for name, found in facts["gradients"].items() if found["not_finite"]]
    assert bad == (["norm.weight"] if spoil == "gradient" else [])
    task = LanguageModelling(run, load_shards(Path(run.data.shards)))
    x, y = load_file(folder / "batch.safetensors").values()
    assert all(map(torch.equal, (x, y), task.batch(last - 1)))
    assert all(t.isfinite().all() for t in load_file(folder / MODEL).values())


@pytest.mark.parametrize(("eval_every", "measured"), [(2, [3, 4, 6]), (6, [6])])
def test_what_was_due_at_such_a_step_is_saved_and_measured_after_the_next_good_one(
    short_run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eval_every: int,
    measured: list[int],
) -> None:
    changed = {"save_every": 2, "eval_every": eval_every, "keep_checkpoints": 9}
    settings = dataclasses.replace(short_run.train, **changed)
    run = dataclasses.replace(short_run, path=tmp_path, train=settings)
    train_spoilt(run, monkeypatch, "loss", {2})
    saved = [step_of(path) for path in list_checkpoints(run.checkpoints)]
    assert saved == [6, 4, 3] and list(run.evaluations()) == measured


@pytest.mark.slow
def test_last_steps_that_are_not_finite_update_nothing_and_the_run_finishes(
    short_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = dataclasses.replace(short_run, path=tmp_path)
    before = train_spoilt(run, monkeypatch, "loss", {5, 6})
    assert run.is_complete and math.isfinite(run.summary()["val_loss"])
    after = newest_checkpoint(run.checkpoints)[0]
    assert after.facts["step"] == 6 and torch.equal(after.model["embed.weight"], before[-1])


def test_checkpoints_come_best_first_and_newest_first_if_hardly_a_text_is_held_out(
    short_run: Run, tmp_path: Path
) -> None:
    run = dataclasses.replace(short_run, path=tmp_path)
    for number, bits in ((2, 1.5), (3, 1.4), (4, math.nan), (6, math.inf)):
        (run.checkpoints / f"step-{number}").mkdir(parents=True)
        run.log(step=number, bits_per_byte=bits)
    (run.checkpoints / "step-5").mkdir()  # not measured
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    assert [*map(json.loads, lines)][2:] == [{"step": 4}, {"step": 6}], "JSON has no NaN"
    assert [step_of(path) for path in run.by_goodness()] == [3, 2, 6, 5, 4]
    few = dataclasses.replace(run, data=dataclasses.replace(run.data, held_out_tokens=999))
    assert [step_of(path) for path in few.by_goodness()] == [6, 5, 4, 3, 2]


@pytest.mark.slow
def test_auto_is_decided_once_and_a_resume_by_the_same_command_keeps_it(
    chats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"dtype": "auto", "steps": 2, "save_every": 1, "n_embd": 32, "n_inner": 32}
    command = quick_words(chats, tmp_path, **settings)
    fast = "multiplies_bfloat16_fast"
    monkeypatch.setattr(training.machine.devices, fast, lambda: True)
    assert main(command) == 0
    assert Run.load(tmp_path).train.dtype == "bfloat16"
    (tmp_path / "summary.json").unlink()
    shutil.rmtree(tmp_path / "checkpoints" / "step-2")
    monkeypatch.setattr(training.machine.devices, fast, lambda: False)
    capsys.readouterr()
    assert main([*command, "--resume"]) == 0
    assert "cpu in bfloat16" in capsys.readouterr().out
    assert Run.load(tmp_path).train.dtype == "bfloat16"


def test_the_first_process_alone_times_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []
    monkeypatch.setattr(
        training.machine.devices, "multiplies_bfloat16_fast", lambda: timed.append(1) or True
    )
    assert pick_dtype("auto", CPU, World(rank=0)) == torch.bfloat16 and timed == [1]
    pick_dtype("auto", CPU, World(rank=1))  # it takes over what the first one says
    assert timed == [1]


def test_after_an_evaluation_that_failed_the_model_trains_again() -> None:
    model = build_model(SMALL).train()
    with pytest.raises(KeyError), evaluating(model):
        raise KeyError
    assert model.training
