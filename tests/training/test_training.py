"""The training loop and what it leaves: files, gradients, optimizers, fine-tuning, divergence."""

import dataclasses
import itertools
import json
import math
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from test_step import SMALL
from torch import Tensor
from trained import QUICK, newest_checkpoint, quick_words, set_options

import gptcore.system.cores
import training.loop
from gptcore.config import ModelConfig
from gptcore.nn import build_model, count_parameters
from gptcore.nn.checkpoint import load_weights
from gptcore.nn.gpt import whole_sequence
from training.__main__ import main
from training.data.corpus import read_documents
from training.data.leaks import without_leaks
from training.data.rows import Rows
from training.data.shards.folder import load_shards
from training.data.sources import open_corpus
from training.data.survey import survey
from training.dialogues.generator import dialogues
from training.formats.places import find_files
from training.machine.devices import autocast, multiplies_bfloat16_fast, pick_dtype
from training.machine.interrupts import Interrupts
from training.machine.progress import EVERY_S, progress, tell_stage, waiting
from training.optim.muon import Muon
from training.optim.optimizers import build_optimizers, rate_factor
from training.run.config import TrainConfig
from training.run.directory import Run
from training.tasks.language import LanguageModelling


def command(out: Path, *words: object, **settings: object) -> int:
    """Run `python -m training` in this process."""
    return main([*map(str, words), "--out", str(out), *set_options(**QUICK | settings)])


@pytest.fixture(scope="module")
def quick_run(chats: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Six steps in float32, with two evaluations and three checkpoints."""
    out = tmp_path_factory.mktemp("training") / "quick"
    assert main(quick_words(chats, out, steps=6, eval_every=3, save_every=2)) == 0
    return Run.load(out)


def newest_weights(run: Run) -> dict[str, Tensor]:
    return newest_checkpoint(run.checkpoints)[0].model


def test_the_loss_falls(run: Run) -> None:
    metrics = run.metrics()
    losses = [m["loss"] for m in metrics if "loss" in m]
    assert len(losses) == 20 and losses[0] > 4
    assert losses[-1] < 0.8 * losses[0]
    first, last = (m["bits_per_byte"] for m in metrics if "bits_per_byte" in m)
    assert last < 0.95 * first


def test_a_run_leaves_its_settings_metrics_curve_samples_and_summary(quick_run: Run) -> None:
    settings = json.loads((quick_run.path / "config.json").read_text())
    assert set(settings["model"]) == {f.name for f in dataclasses.fields(ModelConfig)}
    assert set(settings["train"]) == {f.name for f in dataclasses.fields(TrainConfig)}
    assert settings["model"]["n_layer"] == 1 and settings["train"]["steps"] == 6
    assert settings["data"]["source"] == "chats.jsonl" and settings["data"]["chat"] is True

    metrics = quick_run.metrics()
    logged = [m for m in metrics if "loss" in m]
    assert [m["step"] for m in logged] == [1, 2, 3, 4, 5, 6]
    for m in logged:
        assert 0 < m["loss"] < 10 and 0 < m["gradient_norm"] < 100 and m["tokens_per_s"] > 0
    evaluations = [m for m in metrics if "bits_per_byte" in m]
    assert [m["step"] for m in evaluations] == [3, 6]

    assert (quick_run.path / "loss.png").read_bytes().startswith(b"\x89PNG\r\n")
    samples = (quick_run.path / "samples.md").read_text(encoding="utf-8")
    headings = [line for line in samples.splitlines() if line.startswith("## ")]
    assert headings == ["## Step 3", "## Step 6"]
    assert samples.count("> **") == 6
    assert "<|" not in samples, "a question stands there as it was asked"

    summary = json.loads((quick_run.path / "summary.json").read_text())
    assert summary["steps"] == 6 and summary["tokens"] == 6 * 4 * 64
    assert summary["parameters"] == count_parameters(build_model(quick_run.model))
    assert summary["bits_per_byte"] == evaluations[-1]["bits_per_byte"]
    assert summary["val_loss"] == evaluations[-1]["val_loss"]


def test_the_rate_that_is_logged_is_the_schedules(quick_run: Run) -> None:
    config = quick_run.train
    factors = [rate_factor(s, 6, config.warmup_steps, config.decay_share) for s in range(6)]
    rates = [m["rate"] for m in quick_run.metrics() if "rate" in m]
    assert rates == pytest.approx([config.learning_rate * factor for factor in factors])


def test_only_the_newest_checkpoints_are_kept(quick_run: Run) -> None:
    """And the best of those before them."""
    measured = quick_run.evaluations()
    best = min(measured, key=lambda step: measured[step]["bits_per_byte"])
    kept = {int(path.name.removeprefix("step-")) for path in quick_run.checkpoints.iterdir()}
    assert kept == {best, 4, 6}
    assert quick_run.best_checkpoint().facts["step"] == best


def test_bits_per_byte_are_what_the_checkpoints_logits_say(quick_run: Run, chats: Path) -> None:
    corpus = list(read_documents(find_files([chats])))
    found = survey(lambda: corpus)
    held_out = [d for d in corpus if found.is_validation(d)]
    replies = [m["content"] for d in held_out for m in d if m["role"] == "assistant"]

    shards = load_shards(Path(quick_run.data.shards))
    special = shards.tokenizer.special
    [shard] = shards.split("val")
    ids = shard[:]
    learned, speaker = [], None
    for token in ids.tolist():
        learned.append(speaker == special["<|assistant|>"])
        if token in special.values():
            speaker = token
    model = build_model(quick_run.model).eval()
    load_weights(model, newest_weights(quick_run), quick_run.path)
    nats = n_targets = 0
    for _, start, fresh in Rows(shards, "val", quick_run.model.block_size).packing(0).table:
        inputs = torch.from_numpy(ids[start : start + fresh].astype(np.int64))[None]
        with torch.no_grad():
            logits = model(**whole_sequence(inputs))[0][0].double().numpy()
        for position, row in enumerate(logits, start + 1):
            if learned[position]:
                nats += np.log(np.exp(row).sum()) - row[ids[position]]
                n_targets += 1

    assert n_targets > 500
    expected = nats / math.log(2) / sum(len(reply.encode()) for reply in replies)
    last = [m for m in quick_run.metrics() if "bits_per_byte" in m][-1]
    assert last["bits_per_byte"] == pytest.approx(expected, rel=1e-3)
    assert last["val_loss"] == pytest.approx(nats / n_targets, rel=1e-3)


def test_the_rate_rises_linearly_stays_and_falls_linearly() -> None:
    factors = [rate_factor(step, 100, 9, 0.4) for step in range(101)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10:61] == [1.0] * 51
    assert factors[60:] == pytest.approx([(100 - step) / 40 for step in range(60, 101)])
    assert rate_factor(0, 100, 0, 0.0) == rate_factor(99, 100, 0, 0.0) == 1.0
    assert all(0 < rate_factor(s, 10, 50, 1.0) <= 1 for s in range(10))


@pytest.mark.parametrize("tied", [True, False])
def test_muon_holds_the_blocks_matrices_and_adamw_the_rest_each_once(tied: bool) -> None:
    config = TrainConfig(weight_decay=0.3)
    model = build_model(dataclasses.replace(SMALL, tied_embeddings=tied))
    muon, adamw = build_optimizers(model, config, torch.float32)
    assert isinstance(muon, Muon) and isinstance(adamw, torch.optim.AdamW)
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def held(optimizer: torch.optim.Optimizer) -> list[list[str]]:
        return [[names[id(p)] for p in group["params"]] for group in optimizer.param_groups]

    [matrices], [embeddings, vectors] = held(muon), held(adamw)
    assert sorted(matrices + embeddings + vectors) == sorted(names.values())
    assert len(matrices) == 8 and all(name.startswith("blocks.") for name in matrices)
    assert embeddings == ["embed.weight"] + ([] if tied else ["head.weight"])
    assert all("norm" in name for name in vectors)
    decays = [group["weight_decay"] for group in adamw.param_groups]
    assert decays == [0.3, 0.0] and muon.param_groups[0]["weight_decay"] == 0.3


def test_fine_tuning_starts_from_the_weights_and_takes_over_the_tokenizer(
    quick_run: Run, tmp_path: Path
) -> None:
    text = tmp_path / "other.txt"
    text.write_text("".join(f"Other words, in line {i}.\n" for i in range(300)))
    out = tmp_path / "tuned"
    assert command(out, text, "--init", quick_run.path, steps=1, learning_rate=0.0) == 0
    tuned = Run.load(out)
    assert tuned.model == quick_run.model
    assert tuned.tokenizer.sha256 == quick_run.tokenizer.sha256
    assert load_shards(Path(tuned.data.shards)).tokenizer.sha256 == tuned.tokenizer.sha256
    before, after = newest_weights(quick_run), newest_weights(tuned)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert tuned.data.chat is False


def test_a_tokenizer_can_be_taken_from_another_run(quick_run: Run, tmp_path: Path) -> None:
    text = tmp_path / "other.txt"
    text.write_text("".join(f"Other words, in line {i}.\n" for i in range(300)))
    tokenizer = quick_run.path / "tokenizer"
    words = (text, "--preset", "nano", "--tokenizer", tokenizer)
    assert command(tmp_path / "out", *words, steps=1, n_embd=32) == 0
    assert Run.load(tmp_path / "out").model.vocab_size == 512
    assert Run.load(tmp_path / "out").tokenizer.sha256 == quick_run.tokenizer.sha256


@pytest.mark.parametrize(("share", "n_lines"), [(0.4, 1), (0.97, 0)])
@pytest.mark.slow
def test_training_says_in_one_line_that_the_cores_are_busy(
    quick_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, share, n_lines
) -> None:
    monkeypatch.setattr(gptcore.system.cores, "share_of_cores", lambda: share)
    run = dataclasses.replace(quick_run, path=tmp_path)
    training.loop.train(run, LanguageModelling(run, load_shards(Path(run.data.shards))))
    assert (
        capsys.readouterr().out.count("the cores are busy: this program gets only 40%") == n_lines
    )


def test_without_text_the_made_up_dialogues_are_the_corpus() -> None:
    corpus, source = open_corpus([], 7)
    first, again = iter(corpus()), iter(corpus())
    assert "dialogues" in source
    expected = without_leaks(dialogues(7))
    assert all(next(first) == next(again) == next(expected) for _ in range(5))


def test_help_shows_every_setting_with_its_default_and_meaning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0
    for field in (*dataclasses.fields(ModelConfig), *dataclasses.fields(TrainConfig)):
        default = str(field.default)
        default = default.lower() if isinstance(field.default, bool) else default
        line = re.search(rf"^  {field.name}={re.escape(default)} *(  .+)?$", shown, re.MULTILINE)
        assert (line is None) == (field.name == "lora")  # which --lora sets
    assert "batch_size=32               sequences of block_size tokens in one step\n" in shown


def test_the_precision_of_the_products_is_the_wanted_one() -> None:
    cpu = torch.device("cpu")
    a = torch.ones(2, 2)
    for wanted in ("float32", "bfloat16"):
        dtype = pick_dtype(wanted, cpu)
        with autocast(cpu, dtype):
            assert str((a @ a).dtype) == str(dtype) == f"torch.{wanted}"


def test_bfloat16_is_picked_where_it_multiplies_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock alone: the processor's flags promise it where it is slower, too."""
    cpu = torch.device("cpu")
    monkeypatch.setattr("training.machine.devices.TIMED_SIZE", 8)  # seconds each where it is slow
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    for seconds, expected in ((1, torch.float32), (4, torch.bfloat16)):  # of float32; bfloat16: 1
        clock = itertools.accumulate(itertools.cycle((1, 1, 1, seconds)))
        monkeypatch.setattr(
            "training.machine.devices.time.thread_time", lambda clock=clock: next(clock)
        )
        multiplies_bfloat16_fast.cache_clear()
        assert pick_dtype("auto", cpu) == expected
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    multiplies_bfloat16_fast.cache_clear()
    assert pick_dtype("auto", cpu) == torch.float32
    multiplies_bfloat16_fast.cache_clear()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_interrupt_is_noted_and_a_second_one_ends_the_program(number: int) -> None:
    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, ended)
    try:
        with Interrupts() as interrupts:
            assert not interrupts.received
            signal.raise_signal(number)
            assert interrupts.received
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        with Interrupts():
            pass
        assert signal.getsignal(number) is ended
    finally:
        signal.signal(number, before)


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    """As by nohup, and Ctrl-C in a background job of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            assert not interrupts.received
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_whoever_watches_is_told_at_once_what_takes_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(EVERY_S, "1")
    with waiting("starting"):
        assert "starting: 00:00" in capsys.readouterr().err
    tell_stage("measuring")
    assert not capsys.readouterr().out, "the clock shows it"
    monkeypatch.delenv(EVERY_S)
    with waiting("starting"):
        pass
    assert capsys.readouterr().err.strip() == "", "a log file holds no line for a moment"
    tell_stage("measuring")
    assert capsys.readouterr().out == "measuring ...\n", "but it says what is long"


def test_a_log_file_has_a_line_of_each_stage_and_bar_that_takes_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(EVERY_S, raising=False)
    monkeypatch.setattr("training.machine.progress.SOON_S", 0.0)
    reader, writer = os.pipe()
    with open(reader) as log, open(writer, "w") as out, monkeypatch.context() as replaced:
        replaced.setattr("sys.stdout", out)
        with waiting("exporting"):
            assert log.readline() == "exporting ...\n"
        replaced.setenv("RANK", "1")
        tell_stage("another process says it, too")
        out.write("end\n")
        out.flush()
        assert log.readline() == "end\n"
    said = [capsys.readouterr().err for _ in progress(range(4), "counting", delay=0)]
    assert ["1/4" in said[1], *map(bool, said[2:])] == [True, False, False], "then at the interval"
    assert "4/4" in capsys.readouterr().err
