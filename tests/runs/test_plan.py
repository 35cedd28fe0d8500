"""The dial: sizes, the plan for a time or a depth, keeping to the clock, and what is refused."""

import dataclasses
import json
import math
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Refused
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from gptcore.checks import UserError
from gptcore.nn import build_model, count_parameters
from gptcore.nn.attention import GroupedAttention
from gptcore.system.files import sealed, unseal
from training.__main__ import main as training_main
from training.data.corpus import read_documents
from training.data.rows import Rows
from training.data.shards.folder import prepare
from training.data.survey import Surveyor, survey
from training.formats.places import find_files
from training.jobs.telling import tell
from training.machine.flops import parameters
from training.machine.memory import kept_bytes
from training.optim.optimizers import rate_factor
from training.plan.given import doubts
from training.plan.pilot import Speed, between, pilot_bits_per_byte
from training.plan.plan import Plan
from training.plan.planner import Planner, estimated_facts, make_plan
from training.plan.scaling import (
    DEPTHS,
    ENOUGH_TOKENS,
    MANY_EPOCHS,
    REPEATS,
    SLOPE,
    Facts,
    Pilot,
    dropout_for,
    effective_bytes,
    expected_bits_per_byte,
    model_at,
    most_epochs,
    settings_at,
)
from training.report.history import History
from training.run.clock import Clock
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import RunData
from training.state import held_bytes

BOOK = Facts(n_bytes=440_000, bytes_per_token=4.2)
LIBRARY = Facts(n_bytes=2_000_000_000, bytes_per_token=4.2)


def fast(flops: float = 2e11) -> Speed:
    """A machine of known speed, so that nothing is measured."""
    speed = Speed()
    speed.passes = speed.updates = dict.fromkeys(DEPTHS, flops)
    return speed


def plan_for(facts: Facts, seconds: float, *settings: str) -> Plan:
    return make_plan(facts, DEPTHS, fast(), seconds, list(settings))


@given(st.integers(1000, 10**6), st.sampled_from([5.0, 30.0, 600.0]))
def test_a_plan_does_not_doubt_itself(n_bytes: int, seconds: float) -> None:
    plan = plan_for(Facts(n_bytes, bytes_per_token=2.0), seconds)
    n_rows = max(1, n_bytes // 2 // plan.model.block_size)
    epochs = plan.training.steps * plan.training.batch_size / n_rows
    assert not list(doubts(plan.training, n_rows, n_rows * plan.model.block_size, epochs))


@pytest.mark.parametrize("facts", [BOOK, LIBRARY], ids=["book", "library"])
def test_each_depth_is_a_larger_model_that_can_be_built(facts: Facts) -> None:
    models = [model_at(depth, facts) for depth in DEPTHS]
    sizes = [parameters(model) for model in models]
    assert sizes == sorted(sizes)
    for model in models:
        assert model.head_dim == 64 and model.n_inner % 32 == 0
        assert model.n_inner >= model.n_embd * 8 / 3
    small = build_model(models[1])
    norms = (2 * models[1].n_layer + 1) * models[1].n_embd
    assert count_parameters(small) == sizes[1] + norms


def test_more_text_gets_a_larger_vocabulary_and_longer_context() -> None:
    book, library = model_at(9, BOOK), model_at(9, LIBRARY)
    assert book.vocab_size < library.vocab_size
    assert book.block_size < library.block_size


@pytest.mark.parametrize("facts", [BOOK, LIBRARY], ids=["book", "library"])
def test_more_time_never_promises_less(facts: Facts) -> None:
    plans = [plan_for(facts, seconds) for seconds in (60, 600, 6_000, 60_000)]
    expected = [plan.expected_bits_per_byte for plan in plans]
    assert expected == sorted(expected, reverse=True)
    sizes = [parameters(plan.model) for plan in plans]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("minutes", [3, 10, 60, 600])
def test_a_plan_fills_its_time(minutes: float) -> None:
    plan = plan_for(LIBRARY, minutes * 60)
    assert plan.seconds == pytest.approx(minutes * 60, rel=0.02)


def test_a_plan_does_not_read_a_book_hundreds_of_times() -> None:
    assert plan_for(BOOK, 60).seconds == pytest.approx(60, rel=0.02)
    plan = plan_for(BOOK, 36_000)
    assert plan.epochs == pytest.approx(MANY_EPOCHS, rel=0.02) and plan.seconds < 600


def test_a_tiny_text_is_read_until_it_is_learned() -> None:
    """Sixty passes over a table of 150 rows take 190 steps: 33 of its answers were right."""
    plan = plan_for(Facts(16_000, 4.0), 36_000)
    assert plan.tokens == pytest.approx(ENOUGH_TOKENS, rel=0.02) and plan.epochs > 400
    assert most_epochs(10**6) == MANY_EPOCHS


@pytest.mark.parametrize(
    ("n_tokens", "seconds", "is_said"),
    [(4_000, 60.0, True), (100_000, 60.0, True), (4_000, 114.0, False)],  # about 1.9 minutes
)
def test_of_more_minutes_than_a_text_needs_it_is_said_why_they_end(
    n_tokens: int,
    seconds: float,
    is_said: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    training = TrainConfig(steps=round(most_epochs(n_tokens) * n_tokens / 2_000))
    data, options = RunData("", chat=False, n_bytes=0), {"minutes": "2"}
    clock = Clock(118.0, evaluation_steps=1.0)
    run = Run(model_at(1, BOOK), training, data, clock, options, path=tmp_path)
    task = SimpleNamespace(steps_per_epoch=n_tokens / 2_000, tokens_per_step=2_000)
    tell(run, task, 0.1, seconds, expected="")
    why = f"the training ends after {500 if n_tokens == 4_000 else 60} passes over it, as more"
    note = f"note: --minutes 2 is more than this text needs: {why} would teach it nothing new\n"
    said = capsys.readouterr().out
    assert (note in said) == is_said == ("--minutes" in said)


def test_of_fewer_minutes_than_a_text_needs_it_is_said_how_many_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = SimpleNamespace(steps_per_epoch=6, tokens_per_step=2_000)
    for most in (80, 32):  # which the text is worth; the time allows 30
        clock = Clock(30.0, evaluation_steps=1.0, most_steps=most)
        data = RunData("", chat=True, n_bytes=0, needed_steps=clock.needed(30))
        options = {"minutes": "0.5"}
        run = Run(model_at(1, BOOK), TrainConfig(steps=30), data, clock, options, path=tmp_path)
        tell(run, task, 1.0, 30.0, expected="")
        note = "--minutes 0.5 is less than this text needs: give it about 80 seconds, in which it "
        note += "is read 13 times\n"
        assert (f"note: {note}" in (said := capsys.readouterr().out)) == (most == 80), said


def test_a_small_book_gets_dropout_and_a_smaller_model_than_a_library() -> None:
    book, library = plan_for(BOOK, 600_000), plan_for(LIBRARY, 600_000)
    assert book.model.dropout > 0 == library.model.dropout
    assert parameters(book.model) < parameters(library.model)
    assert book.epochs > 4 > library.epochs


def test_what_follows_from_a_setting_follows_from_the_users() -> None:
    facts = Facts(50_000_000, 4.0)
    _, training = settings_at(4, facts, 1e8, ["steps=100"], evaluations=5)
    assert (training.steps, training.warmup_steps, training.eval_every) == (100, 10, 20)
    for n_bytes in range(4_000, 40_000, 1_000):
        _, training = settings_at(1, Facts(n_bytes, 3.0), 2e6, ["micro_batch_size=4"])
        assert training.micro_batch_size == 4
        assert training.batch_size < 4 or training.batch_size % 4 == 0
    _, training = settings_at(4, facts, 1e8, ["micro_batch_size=4", "batch_size=12"])
    assert (training.batch_size, training.micro_batch_size) == (12, 4)
    assert Planner(1.0, None, ["micro_batch_size=24", "seed=3"]).seed == 3  # 24 divides no 32


def test_settings_of_the_user_stand_and_the_rest_is_planned_around_them() -> None:
    plan = plan_for(
        LIBRARY,
        600,
        "batch_size=64",
        "learning_rate=0.001",
        "n_embd=128",
        "n_head=2",
        "n_kv_head=1",
    )
    assert (plan.training.batch_size, plan.training.learning_rate) == (64, 0.001)
    assert plan.model.n_embd == 128
    assert plan.seconds == pytest.approx(600, rel=0.02)


def test_a_depth_without_a_time_reads_what_it_deserves() -> None:
    library = make_plan(LIBRARY, [4], fast(), None, [])
    assert library.depth == 4
    assert library.tokens == pytest.approx(20 * parameters(library.model), rel=0.02)
    book = make_plan(BOOK, [4], fast(), None, [])
    assert book.epochs == pytest.approx(16, rel=0.02)


def test_the_table_says_all_that_was_chosen() -> None:
    plan = plan_for(BOOK, 600)
    table = plan.table()
    for said in (
        f"{parameters(plan.model):,} parameters",
        f"vocabulary {plan.model.vocab_size:,}",
        f"{plan.tokens:,} tokens",
        f"{plan.expected_bits_per_byte:.2f} bits per byte",
        f"{plan.training.learning_rate:g}",
    ):
        assert said in table
    assert len(table.splitlines()) < 10
    assert "clock" not in table
    assert "fitted to the clock" in dataclasses.replace(plan, clock=CLOCK).table()


@given(st.floats(1e3, 1e12), st.floats(1e3, 1e12))
def test_repeated_text_counts_less_and_less(read: float, distinct: float) -> None:
    worth = effective_bytes(read, distinct)
    assert worth <= read * (1 + 1e-9)
    assert worth <= distinct * (1 + REPEATS) * (1 + 1e-9)
    assert worth <= effective_bytes(2 * read, distinct) * (1 + 1e-9)
    if read <= distinct:
        assert worth == read


def test_more_text_and_more_parameters_are_expected_to_help() -> None:
    bits = [expected_bits_per_byte(LIBRARY, model_at(4, LIBRARY), n) for n in (1e6, 1e7, 1e8)]
    assert bits == sorted(bits, reverse=True)
    bits = [expected_bits_per_byte(LIBRARY, model_at(d, LIBRARY), 1e9) for d in DEPTHS]
    assert bits == sorted(bits, reverse=True)


def test_a_pilot_of_seconds_promises_no_more_than_short_runs_keep() -> None:
    """A newcomer's two minutes were to end at 1.20 bits per byte, and ended at 1.65."""
    facts = dataclasses.replace(BOOK, hardness=1.3, pilot=Pilot(2.5, 40_000 * 4.2))
    plan = plan_for(facts, 120)
    long = plan_for(dataclasses.replace(facts, pilot=None), 120)
    assert plan.depth == long.depth and long.expected_bits_per_byte == long.rule_bits_per_byte
    n_bytes = effective_bytes(plan.tokens * 4.2, BOOK.n_bytes)
    assert plan.expected_bits_per_byte == pytest.approx(2.5 * (n_bytes / (40_000 * 4.2)) ** -SLOPE)
    assert plan.expected_bits_per_byte > plan.rule_bits_per_byte
    assert f"{plan.expected_bits_per_byte:.2f} bits per byte" in plan.table()
    mild = dataclasses.replace(facts, pilot=Pilot(0.1, 40_000 * 4.2))  # the rule says more
    assert plan_for(mild, 120).expected_bits_per_byte == plan.rule_bits_per_byte


def test_dropout_never_falls_as_epochs_grow() -> None:
    dropouts = [dropout_for(epochs) for epochs in (0.1, 1, 5, 10, 20, 1000)]
    assert dropouts[0] == 0.0 and dropouts == sorted(dropouts)


def test_speed_between_two_measured_depths_lies_between_theirs() -> None:
    measured = {2: 1e10, 8: 9e10}
    assert between(measured, 1) == 1e10 and between(measured, 24) == 9e10
    assert between(measured, 4) == pytest.approx(3e10)


def test_speed_is_measured_by_real_steps() -> None:
    speed = Speed()
    model = dataclasses.replace(model_at(1, BOOK), vocab_size=300, block_size=64)
    speed.measure(1, model, TrainConfig(), seconds=0.05)
    assert 1e6 < speed.passes[1] < 1e16 and 1e5 < speed.updates[1] < 1e16
    assert 0 < speed.step_seconds(1, model, 8) < speed.step_seconds(1, model, 16) < 60


@contextmanager
def inputs_of(kind: type[nn.Module]) -> Iterator[list[Tensor]]:
    """The first inputs of all modules of a kind that are called meanwhile."""
    found: list[Tensor] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, kind):
            found.append(inputs[0])

    hook = register_module_forward_pre_hook(note)
    try:
        yield found
    finally:
        hook.remove()


def test_speed_is_measured_with_as_many_rows_at_once_as_the_run_takes() -> None:
    model = dataclasses.replace(model_at(1, BOOK), vocab_size=300, block_size=256)
    with inputs_of(nn.Embedding) as found:
        Speed().measure(1, model, TrainConfig(micro_batch_size=2), seconds=0.0)
    assert found and {len(ids) for ids in found} == {2}


@pytest.mark.parametrize(("share", "n_calls"), [(1.9, 6), (2.1, 3)])
def test_speed_is_measured_with_blocks_computed_twice_if_the_run_will_do_so(
    share: float, n_calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows of its micro-batch decide, though the measurement itself takes fewer."""
    model = dataclasses.replace(model_at(1, BOOK), vocab_size=300, block_size=256)
    training = TrainConfig(dtype="float32")
    needed = kept_bytes(model, training.micro_batch_size, 256, size=4, is_fused=False)
    free = held_bytes(model, training) + share * needed
    monkeypatch.setattr("training.machine.memory.free_memory", lambda _: free)
    with inputs_of(GroupedAttention) as found:
        Speed().measure(1, model, training, seconds=0.0)
    assert len(found) == n_calls  # in three steps of one layer


def simulate(config: TrainConfig, clock: Clock, step_s: float) -> tuple[float, int]:
    """The loop's clock without its training: when it ends, and how often it was refitted.

    An evaluation lasts ten steps.
    """
    elapsed, evaluations = 0.0, []
    done = fits = 0
    while done < config.steps:
        if not fits and clock.is_due(config, done, elapsed):
            config = clock.fitted(config, done, step_s, evaluations, elapsed)
            fits += 1
        elapsed += step_s
        done += 1
        if done % config.eval_every == 0 or done == config.steps:
            evaluations.append(10 * step_s)
            elapsed += evaluations[-1]
    return elapsed, fits


PLANNED = TrainConfig(steps=2000, decay_share=0.4, eval_every=400, warmup_steps=50)
CLOCK = Clock(budget_s=2050.0, evaluation_steps=10.0)


@pytest.mark.parametrize("factor", [0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 3.0])
def test_a_machine_slower_or_faster_than_measured_still_ends_in_time(factor: float) -> None:
    elapsed, fits = simulate(PLANNED, CLOCK, factor)
    assert fits == 1
    assert elapsed == pytest.approx(2050, rel=0.05)


@given(st.integers(1, 5000), st.floats(1e-3, 10), st.floats(0, 1e4), st.floats(-1e3, 1e4))
def test_a_refitted_plan_did_until_now_what_the_old_one_did_and_then_falls_to_nothing(
    done: int, step_s: float, evaluation_steps: float, left_s: float
) -> None:
    # the rate has not begun to fall
    old = TrainConfig(steps=math.ceil(done / 0.6) + 1, decay_share=0.4, warmup_steps=30)
    new = Clock(1e5 + left_s, evaluation_steps).fitted(old, done, step_s, [], seconds=1e5)
    assert new.steps > done

    def rate(config: TrainConfig, step: int) -> float:
        return rate_factor(step, config.steps, config.warmup_steps, config.decay_share)

    for step in {0, done // 2, done - 1}:
        assert rate(new, step) == rate(old, step)
    assert rate(new, new.steps - 1) <= 1 / (new.steps - done)
    if left_s > 0:
        spent = (new.steps - done) * step_s
        assert spent <= max(left_s, step_s * (1 + done / 20)) * 1.01 + step_s


def test_a_corpus_has_its_size_and_bytes_per_token(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"This is line {i} of the text.\n" for i in range(999)))
    facts = estimated_facts(survey(lambda: read_documents(find_files([file]))))
    assert facts.n_bytes == file.stat().st_size
    assert 2 < facts.bytes_per_token < 30


def book_of(n_lines: int, path: Path) -> Path:
    words = random.Random(1)
    path.write_text(
        "".join(f"Line {words.random()} says {words.random()}.\n" for _ in range(n_lines))
    )
    return path


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return book_of(400, tmp_path / "book.txt")


def test_no_pilot_runs_where_nothing_is_foretold(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = prepare(lambda: read_documents(find_files([book])), tmp_path / "shards", 512)
    monkeypatch.setattr("training.plan.planner.measured_hardness", None)
    plan = Planner(minutes=None, depth=1, settings=[]).plan(shards)
    assert plan.expectation == "" and "expected" not in plan.table()


@pytest.mark.parametrize(("depth", "n_layers"), [(None, (1, 2)), (1, (1, 1))])
def test_conversations_get_two_layers_at_least(depth: int | None, n_layers: tuple) -> None:
    """A short text alone gets one, and so does who asks for it."""
    surveyor = Surveyor()
    for i in range(60):
        surveyor.add(f"What is number {i}? It is {i}.")
    text = surveyor.survey()
    chats = dataclasses.replace(text, n_chats=text.n_documents)
    for found, n_layer in zip((text, chats), n_layers):
        assert Planner(minutes=1, depth=depth, settings=[]).shape(found).n_layer == n_layer
        planner = Planner(minutes=1, depth=depth, settings=[])
        planner.deepen(found.n_chats > 0)  # as for finished shards, which have no survey
        assert min(planner.depths) == n_layer


def test_a_pilot_run_measures_64_rows_at_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = book_of(2400, tmp_path / "book.txt")
    shards = prepare(lambda: read_documents(find_files([book])), tmp_path / "shards", 512)
    model = dataclasses.replace(model_at(1, BOOK), vocab_size=512, block_size=16)
    assert 64 < len(Rows(shards, "val", 16)) < 128
    training = TrainConfig(steps=1, batch_size=1, micro_batch_size=1)
    with inputs_of(nn.Embedding) as found:
        pilot_bits_per_byte(shards, model, training)
    assert 32 <= sum(len(ids) for ids in found[1:]) <= 64
    assert "a pilot run, to predict the loss ...\n" in capsys.readouterr().out, "in a log"


@pytest.fixture
def own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks tell the time of the processor for this process alone, whatever else is running."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)


@pytest.mark.slow
@pytest.mark.usefixtures("own_time")
@pytest.mark.parametrize(
    ("n_lines", "expected"), [(400, ""), (9000, r"\nexpected +\d\.\d+ bits per byte")]
)
def test_a_short_time_is_planned_trained_and_refitted(
    n_lines: int, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out, book = tmp_path / "out", book_of(n_lines, tmp_path / "book.txt")
    assert training_main([str(book), "--minutes", "0.1", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert re.search(expected, said) if expected else "\nexpected" not in said
    run = Run.load(out)
    assert run.clock is None and (run.data.expected_bits_per_byte is None) == (n_lines == 400)
    assert json.loads((out / "summary.json").read_text())["steps"] == run.train.steps


def test_a_clock_is_kept_with_the_settings_and_is_none_of_the_facts(tmp_path: Path) -> None:
    run = Run(model_at(1, BOOK), PLANNED, RunData("book", False, n_bytes=1), CLOCK, path=tmp_path)
    run.create()
    assert Run.load(tmp_path) == run
    assert not History(run).settings.keys() & dataclasses.asdict(CLOCK)
    config = tmp_path / "config.json"
    settings = unseal(config.read_text())
    config.write_text(sealed(settings | {"clock": settings["clock"] | {"budget_s": "2050"}}))
    with pytest.raises(UserError, match=r"config\.json: clock: budget_s='2050' is not of type"):
        Run.load(tmp_path)


@pytest.mark.slow
def test_a_depth_is_planned_and_trained_and_the_same_command_goes_on(
    book: Path, tmp_path: Path, refused: Refused
) -> None:
    out = tmp_path / "out"
    started = (book, "--depth", 1, "--set=steps=2", "--out", out)
    assert training_main([str(word) for word in started]) == 0
    run = Run.load(out)
    assert run.train.steps == 2 and run.model.n_layer == 1
    assert "is complete already" in refused(training_main, *started, "--resume")
    assert "steps=3, but" in refused(training_main, *started, "--resume", "--set=steps=3")
    assert "depth=2, but the run" in refused(training_main, *started, "--resume", "--depth=2")
    other = book.rename(tmp_path / "other.txt")
    said = refused(training_main, other, *started[1:], "--resume")
    assert "source=other.txt, but the run" in said
    other.rename(book)

    fitted = dataclasses.replace(run.train, decay_share=0.31)
    dataclasses.replace(run, train=fitted, options={"minutes": "5.0"}).write_config()
    for minutes, words in {5: "is complete already", 6: "minutes=6.0, but the run"}.items():
        again = (book, "--minutes", minutes, "--set=decay_share=0.4", "--out", out, "--resume")
        assert words in refused(training_main, *again)


@pytest.mark.slow
@pytest.mark.usefixtures("own_time")
def test_a_plan_that_is_only_asked_for_trains_nothing(
    book: Path, tmp_path: Path, capsys: pytest.CaptureFixture, refused: Refused
) -> None:
    out = tmp_path / "out"
    asked = [str(book), "--minutes", "0.2", "--out", str(out)]
    assert training_main([*asked, "--plan"]) == 0
    assert re.search(r"size .+\ntime .+ tokens/s\)\n$", capsys.readouterr().out)
    assert not out.exists()
    begun = (book, "--preset", "nano", "--set=steps=1", "--set=n_layer=1", "--out", out)
    assert training_main([str(word) for word in begun]) == 0
    assert "--plan is of a new training" in refused(training_main, *begun, "--resume", "--plan")


DIALS = {
    "--minutes 5 --depth 2": "--minutes and --depth both set the size: give only one of them",
    "--minutes 0": "--minutes 0 is out of range",
    "--minutes -3": "--minutes -3 is out of range",
    "--minutes nan": "--minutes nan is out of range",
    "--minutes inf": "--minutes inf is out of range",
    "--depth 0": "--depth 0 is out of range: choose 1 to 24",
    "--depth 99": "--depth 99 is out of range",
    "--depth 2 --preset nano": "choose the shape: drop them, or --preset",
    "--minutes 2 --init runs/base": "runs/base",
    "--minutes 2 --lora 4": "--lora adapts a trained model: name it with --init",
    "--minutes 0 --init models/nano": "--minutes 0 is out of range",
    "--minutes 2 --set steps=9": "--minutes chooses the steps",
    "--minutes 2 --set row_tokens=99": "plan with rows as long as the context",
    "--depth 2 --set lora=4": "write --lora RANK, with --init",
    "--minutes 2 --set stepz=9": "unknown setting 'stepz'",
    "--minutes 0.05 --set batch_size=9999": "--minutes 0.05 is too few for this text",
}


@pytest.mark.parametrize("dial", DIALS)
def test_a_dial_that_makes_no_sense_is_refused(
    dial: str, book: Path, tmp_path: Path, refused: Refused
) -> None:
    said = refused(training_main, book, *dial.split(), "--out", tmp_path / "out")
    assert DIALS[dial] in said
    assert not (tmp_path / "out").exists()
