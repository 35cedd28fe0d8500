"""Training on sentence pairs: what is learned, measured, kept, and gone on with."""

import argparse
import dataclasses
import hashlib
import json
import math
import signal
from itertools import chain
from pathlib import Path

import pytest
import sacrebleu
import torch
from conftest import Refused
from torch.nn import functional as F
from trained import TINY_TRANSLATOR, made_up_pairs, newest_checkpoint, set_options

from export.folder.write import measured as told_by_card
from gptcore.config import DECODERS, TRANSLATORS
from gptcore.nn import build_model
from gptcore.nn.checkpoint import MODEL, STATE, load_weights
from gptcore.nn.seq2seq import Seq2Seq
from gptcore.system.command_line import INTERRUPTED
from gptcore.text.tokenizer import Tokenizer
from training.__main__ import main
from training.commands.train import add_arguments
from training.data.pairs.sentences import encode_pairs, read_pairs, split_pairs, write_pairs
from training.data.rows import IGNORED
from training.jobs.options import from_preset
from training.jobs.translation import open_task
from training.machine.processes import World
from training.optim.optimizers import build_optimizers
from training.run.config import TRAININGS, TrainConfig
from training.run.directory import Run
from training.run.settings import read_settings
from training.state import State
from training.step import accumulate_gradients
from training.tasks.translation import TRAINING, VALIDATION, TranslationTask, score

QUICK = TINY_TRANSLATOR | {"n_layer": 1, "n_embd": 32, "batch_size": 8, "micro_batch_size": 4}
CLOCK = ("tokens_per_s", "seconds")


@pytest.fixture(scope="module")
def task(translation_run: Run) -> TranslationTask:
    return open_task(translation_run)


@pytest.fixture(scope="module")
def trained(translation_run: Run) -> Seq2Seq:
    model = build_model(translation_run.model)
    checkpoint, _ = newest_checkpoint(translation_run.checkpoints)
    load_weights(model, checkpoint.model, checkpoint.path)
    return model.eval()


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pairs to measure on, which are quickly translated."""
    path = tmp_path_factory.mktemp("data") / "few.tsv"
    write_pairs(made_up_pairs(603)[600:], path)
    return path


def command(pairs: Path, out: Path, *words: object, **settings: object) -> list[str]:
    options = set_options(**(QUICK | {"steps": 2} | settings))
    return ["translate", str(pairs), "--out", str(out), *map(str, words), *options]


def test_the_loss_falls_and_the_language_is_learned(
    translation_run: Run, task: TranslationTask
) -> None:
    losses = [m["loss"] for m in translation_run.metrics() if "loss" in m]
    measured = [m for m in translation_run.metrics() if "chrf" in m]
    assert losses[-1] < 0.5 * losses[0]
    assert [m["step"] for m in measured] == [80, 160]
    untrained = task.evaluate(build_model(translation_run.model))
    assert measured[-1]["chrf"] > 90 > 30 > untrained["chrf"]
    assert measured[-1]["bits_per_byte"] < 0.2 * untrained["bits_per_byte"]


def test_a_run_leaves_behind_all_that_it_should(translation_run: Run, pairs_file: Path) -> None:
    path = translation_run.path
    summary = json.loads((path / "summary.json").read_text())
    last = [m for m in translation_run.metrics() if "chrf" in m][-1]
    for name in ("val_loss", "bits_per_byte", "bleu", "chrf"):
        assert summary[name] == last[name]
    assert summary["steps"] == 160 and summary["data"]["n_pairs"] == len(
        read_pairs(path / TRAINING)
    )
    assert (path / "loss.png").stat().st_size > 1000
    samples = (path / "samples.md").read_text(encoding="utf-8")
    for source, _ in read_pairs(path / VALIDATION)[:5]:
        assert samples.count(f"> **{source}** ") == 2
    both = tuple(read_pairs(path / name) for name in (TRAINING, VALIDATION))
    assert both == split_pairs(read_pairs(pairs_file))
    assert translation_run.data.source == "pairs.tsv, first column to the second"
    assert "/" not in translation_run.data.source and translation_run.data.chat is False


def test_each_side_has_a_tokenizer_of_its_own(translation_run: Run, task: TranslationTask) -> None:
    assert task.tokenizer.sha256 != task.source_tokenizer.sha256
    assert "狗".encode() in task.source_tokenizer.ranks
    assert b" red" in task.tokenizer.ranks


@pytest.mark.parametrize("preset", ["handbook", "original"])
def test_shared_embeddings_have_one_tokenizer(
    preset: str, pairs_file: Path, few: Path, tmp_path: Path
) -> None:
    words = ("--preset", preset, "--validation", few)
    assert main(command(pairs_file, tmp_path / "out", *words, n_kv_head=8, n_embd=32)) == 0
    run = Run.load(tmp_path / "out")
    task = open_task(run)
    assert task.tokenizer.sha256 == task.source_tokenizer.sha256
    assert run.model.vocab_size == run.model.source_vocab_size == task.tokenizer.vocab_size
    sides = zip(*read_pairs(run.path / TRAINING))
    assert task.tokenizer.sha256 == Tokenizer.train(chain(*sides), 320).sha256
    assert run.train.optimizer == "muon" and run.train.label_smoothing == 0.1


def test_the_same_command_or_a_part_of_it_goes_on(
    pairs_file: Path, few: Path, tmp_path: Path, refused: Refused
) -> None:
    out = tmp_path / "out"
    words = ("--preset", "original", "--validation", few, "--reverse")
    started = command(pairs_file, out, *words, n_kv_head=8)
    assert main(started) == 0
    for again in (started, ["translate", pairs_file, "--reverse", "--out", out]):
        assert "is complete already" in refused(main, *again, "--resume")
    said = refused(main, "translate", pairs_file, "--out", out, "--resume")
    assert "source=pairs.tsv, first column to the second, but the run in" in said
    other = ("--resume", "--validation", pairs_file)
    assert f"has validation={few}: give" in refused(main, *started, *other)


def test_pairs_to_measure_on_may_be_given_and_are_not_trained_on(
    pairs_file: Path, tmp_path: Path
) -> None:
    pairs = read_pairs(pairs_file)
    write_pairs(pairs[5:8], tmp_path / "held_out.tsv")
    words = ("--validation", tmp_path / "held_out.tsv", "--reverse")
    assert main(command(pairs_file, tmp_path / "out", *words)) == 0
    turned = [(b, a) for a, b in pairs]
    assert read_pairs(tmp_path / "out" / VALIDATION) == turned[5:8]
    assert read_pairs(tmp_path / "out" / TRAINING) == turned[:5] + turned[8:]
    run = Run.load(tmp_path / "out")
    assert run.data.source == "pairs.tsv, second column to the first" and run.data.reverse
    assert run.data.few_held_out, "three pairs choose no step"
    assert run.data.held_out_tokens == open_task(run).held_out.n_target_tokens > 0


def state_hash(run: Path) -> str:
    folder = newest_checkpoint(run / "checkpoints")[0].path
    return hashlib.sha256((folder / MODEL).read_bytes() + (folder / STATE).read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_run_stopped_by_ctrl_c_ends_in_the_same_bits(
    pairs_file: Path,
    few: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = {"steps": 6, "log_every": 1, "dropout": 0.1}
    words = ("--validation", few)
    assert main(command(pairs_file, tmp_path / "whole", *words, **settings)) == 0
    batch = TranslationTask.batch

    def interrupted(self: TranslationTask, step: int) -> tuple[torch.Tensor, ...]:
        if step == 2:
            signal.raise_signal(signal.SIGINT)
        return batch(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationTask, "batch", interrupted)
        assert main(command(pairs_file, tmp_path / "out", *words, **settings)) == INTERRUPTED
    assert not (tmp_path / "out" / "summary.json").exists()
    advice = capsys.readouterr().out.split("saved step 3\nto continue: python -m training ")[1]
    assert main(advice.split("\n")[0].split()) == 0, advice
    assert state_hash(tmp_path / "out") == state_hash(tmp_path / "whole")
    logs = [
        [
            {k: v for k, v in m.items() if k not in ("tokens_per_s", "seconds")}
            for m in Run.load(run).metrics()
        ]
        for run in (tmp_path / "out", tmp_path / "whole")
    ]
    assert logs[0] == logs[1] and len(logs[0]) == 9
    samples = [(tmp_path / name / "samples.md").read_text() for name in ("out", "whole")]
    assert samples[0] == samples[1]


def test_label_smoothing_is_the_share_of_the_target_spread_over_all_tokens() -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(3, 4, 7), torch.randint(0, 7, (3, 4))
    targets[1, 2:] = targets[2, 0] = IGNORED
    config = TrainConfig(batch_size=3, micro_batch_size=1, label_smoothing=0.3)
    model = torch.nn.Module()
    model.head = torch.nn.Linear(7, 7, bias=False)
    torch.nn.init.eye_(model.head.weight)
    rows = torch.arange(3)
    state = State(model, model, [], torch.device("cpu"), torch.float32, World())
    measured = accumulate_gradients(
        state, (rows, targets), lambda m, row: m.head(logits[row]), config
    )
    losses = []
    for row, column in zip(*torch.where(targets != IGNORED)):
        log_p = logits[row, column].double().log_softmax(-1)
        wanted = torch.full((7,), 0.3 / 7, dtype=torch.float64)
        wanted[targets[row, column]] += 0.7
        losses.append(-(wanted * log_p).sum().item())
    assert len(losses) == 9
    assert measured == pytest.approx(sum(losses) / 9, abs=1e-6)


def test_the_held_out_loss_equals_a_sentence_by_sentence_one_in_double_precision(
    task: TranslationTask, trained: Seq2Seq, translation_run: Run
) -> None:
    measured = task.evaluate(trained)
    pairs = read_pairs(translation_run.path / VALIDATION)
    _, encoded = encode_pairs(pairs, task.source_tokenizer, task.tokenizer, 32, "")
    model = build_model(translation_run.model).double().eval()
    model.load_state_dict({name: t.double() for name, t in trained.state_dict().items()})
    losses: list[float] = []
    for source, target in encoded:
        source, target = source.tolist(), target.tolist()
        ids, inputs = torch.tensor([source]), torch.tensor([target[:-1]])
        with torch.no_grad():
            logits = model(ids, torch.ones_like(ids), inputs, torch.ones_like(inputs))
        losses += F.cross_entropy(logits[0], torch.tensor(target[1:]), reduction="none").tolist()
    assert measured["val_loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-5)
    n_bytes = sum(len(target.encode("utf-8")) for _, target in pairs)
    assert measured["bits_per_byte"] == pytest.approx(sum(losses) / math.log(2) / n_bytes, abs=1e-5)


def test_measuring_leaves_the_model_in_its_mode(task: TranslationTask, trained: Seq2Seq) -> None:
    for mode in (True, False):
        trained.train(mode)
        task.samples(trained)
        assert trained.training is mode
    trained.train()
    task.evaluate(trained)
    assert trained.training
    trained.eval()


def test_the_scores_are_sacrebleus() -> None:
    texts = ["Two red dogs sleep.", "A cat!", "Five green birds are here", ""]
    references = ["Two red dogs sleep.", "A white cat!", "Five birds are here now.", "Nothing."]
    found = score(texts, references)
    assert found.bleu == sacrebleu.corpus_bleu(texts, [references]).score
    assert found.chrf == sacrebleu.corpus_chrf(texts, [references]).score
    assert score(references, references) == pytest.approx((100, 100))


def test_japanese_is_scored_by_characters() -> None:
    """sacreBLEU's Chinese tokenizer leaves a run of kana whole, so that near means wrong."""
    found = score(["ありがとうございました。"], ["ありがとうございます。"])
    assert found.bleu > 50
    assert score(["我喜欢茶。"], ["我喜欢水。"]).bleu > 0


def test_of_chinese_the_characters_are_scored() -> None:
    texts, references = ["三只红色的狗在睡觉。", "我喜欢猫"], ["三只红色的狗在跑步。", "我喜欢猫!"]
    found = score(texts, references).bleu
    assert found == sacrebleu.corpus_bleu(texts, [references], tokenize="zh").score
    assert found != sacrebleu.corpus_bleu(texts, [references], tokenize="13a").score
    # a Chinese word or two do not make an English text Chinese
    mixed = ["The dog 狗 sleeps here", "I like cats"]
    assert score(texts, mixed).bleu == sacrebleu.corpus_bleu(texts, [mixed], tokenize="13a").score


def test_a_held_out_sentence_longer_than_the_context_does_not_end_the_training(
    pairs_file: Path, tmp_path: Path
) -> None:
    held_out = [*made_up_pairs(602)[600:], ("跑" * 40, "run"), ("跑", "run " * 40)]
    write_pairs(held_out, tmp_path / "held_out.tsv")
    words = ("--validation", tmp_path / "held_out.tsv")
    assert main(command(pairs_file, tmp_path / "out", *words)) == 0


def test_pairs_that_are_too_long_do_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = made_up_pairs(40)
    long = "".join(source for source, _ in pairs)
    write_pairs([*pairs[:38], (long, "sleep")], tmp_path / "pairs.tsv")
    write_pairs([*pairs[38:], ("跑" * 40, "run")], tmp_path / "held_out.tsv")
    words = ("--validation", tmp_path / "held_out.tsv")
    assert main(command(tmp_path / "pairs.tsv", tmp_path / "out", *words)) == 0
    said = capsys.readouterr().out
    assert "left out 1 pair to train on" in said and "left out 1 pair to measure on" in said
    assert "38 pairs to train on, 2 to measure on" in said
    run = Run.load(tmp_path / "out")
    assert run.data.n_pairs == 38
    assert run.data.n_bytes == sum(len(text.encode()) for pair in pairs[:38] for text in pair)


@pytest.mark.parametrize(("n", "batch", "words"), [(3, 64, "2 rows"), (2, 8, "1 row")])
def test_a_batch_larger_than_all_pairs_is_doubted(
    n: int, batch: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [("跑", "go"), ("猫", "a"), ("红", "i")][:n]
    write_pairs(pairs, tmp_path / "pairs.tsv")
    line = command(tmp_path / "pairs.tsv", tmp_path / "out", batch_size=batch, micro_batch_size=2)
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "2 steps, 2.0 passes over the text (" in said
    assert f"note: batch_size={batch}, but the text fills {words}: each step reads all of" in said
    assert "epochs:" not in said


def test_no_figure_of_hardly_any_unseen_text_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(made_up_pairs(40), tmp_path / "pairs.tsv")
    assert main(command(tmp_path / "pairs.tsv", tmp_path / "out")) == 0
    said = capsys.readouterr()
    assert "So no such figure is shown" in said.out
    assert "step 2: too little unseen text to measure\n" in said.out + said.err
    run = Run.load(tmp_path / "out")
    assert run.evaluations()[2]["chrf"] >= 0, "it is in the run's own files"
    shown = said.out + said.err + (run.path / "report.html").read_text(encoding="utf-8")
    assert "BLEU" not in shown and "chrF" not in shown
    assert not {"val_loss", "bits_per_byte", "bleu", "chrf"} & told_by_card(run, 2).keys()


def test_of_many_held_out_pairs_some_are_translated_and_all_are_measured(
    task: TranslationTask, trained: Seq2Seq, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = task.evaluate(trained)
    monkeypatch.setattr("training.tasks.translation.MAX_VALIDATION", 3)
    first = [target for _, target in task.validation[:3]]
    found = task.evaluate(trained)
    assert found["chrf"] == score(task.translate(trained, task.validation[:3]), first).chrf
    assert found["val_loss"] == whole["val_loss"]
    one = task.evaluation_seconds(trained)
    monkeypatch.setattr("training.tasks.translation.MAX_VALIDATION", 10**6)
    assert task.evaluation_seconds(trained) > one > 0


def resolved(*words: str) -> tuple:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return from_preset(parser.parse_args([*words]))[:2]


def test_a_textbook_preset_comes_with_its_recipe() -> None:
    for preset in ("wayland", "wayland_post"):
        model, training = resolved("--preset", preset)
        assert model == DECODERS[preset]
        assert (training.batch_size, training.learning_rate, training.steps) == (4, 1e-3, 5000)
        assert training.optimizer == "adamw" and training == TRAININGS[preset]
        assert training.eval_every == TrainConfig().eval_every, "a run of minutes shows something"
    assert resolved("--preset", "nano")[1] == TrainConfig()


def test_settings_win_over_a_recipe() -> None:
    words = [f"--set={s}" for s in ("steps=7", "optimizer=muon", "n_layer=2")]
    model, training = resolved("--preset", "wayland", *words)
    assert (training.steps, training.optimizer, model.n_layer) == (7, "muon", 2)
    assert training.learning_rate == 1e-3 and model.n_embd == 64
    model, training = read_settings(["vocab_size=300"], TRANSLATORS["vaswani"], TrainConfig())
    assert (model.vocab_size, model.source_vocab_size) == (300, 21_128)


def test_adamw_moves_every_parameter_as_pytorchs_own() -> None:
    config = dataclasses.replace(
        TRAININGS["wayland"], learning_rate=0.01, weight_decay=0.2, beta1=0.8, beta2=0.99
    )
    sizes = {"vocab_size": 30, "n_layer": 1, "n_embd": 8, "n_inner": 8, "dropout": 0.0}
    model_config = dataclasses.replace(DECODERS["wayland"], **sizes, attention_dropout=0.0)
    models = []
    for build in (
        lambda model: build_optimizers(model, config, torch.float32),
        lambda model: [
            torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.99), weight_decay=0.2)
        ],
    ):
        torch.manual_seed(0)
        models.append(build_model(model_config))
        optimizers = build(models[-1])
        ids = torch.arange(5)[None]
        for _ in range(3):
            logits, _ = models[-1](ids, torch.ones_like(ids), ids)
            F.cross_entropy(logits[0], ids[0]).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    assert len(optimizers) == 1
    for ours, theirs in zip(*(model.parameters() for model in models)):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["source_vocab_size", "vocab_size"])
@pytest.mark.slow
def test_a_side_with_few_words_gets_fewer_tokens_than_the_setting_allows(
    name: str, pairs_file: Path, tmp_path: Path
) -> None:
    assert main(command(pairs_file, tmp_path / "out", **{name: 9999})) == 0
    model = Run.load(tmp_path / "out").model
    assert 320 < getattr(model, name) < 9999
    assert min(model.vocab_size, model.source_vocab_size) == 320


def test_tokenizers_are_not_trained_on_what_is_held_out(translation_run: Run) -> None:
    targets = [target for _, target in read_pairs(translation_run.path / TRAINING)]
    assert Tokenizer.train(targets, 320).sha256 == translation_run.tokenizer.sha256
