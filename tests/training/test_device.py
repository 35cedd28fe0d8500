"""The whole training road on a device that is not the CPU, which is pretended: no line of it
may know the CPU alone."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from pretended_device import PretendedDevice
from torch import Tensor, nn
from trained import TINY_TRANSLATOR, Interrupted, newest_checkpoint, quick_words, set_options

import training.evaluation.subject
import training.state
import training.step
from benchmarks.serving.decode import UncachedTorchSession
from export.formats.inspection import InspectGPT, InspectSeq2Seq
from gptcore.config import PRESETS
from gptcore.engine.generate import Request
from gptcore.engine.sampling import Sampling
from gptcore.nn import build_model
from gptcore.nn.checkpoint import Checkpoint, load_weights
from gptcore.nn.gpt import GPT
from gptcore.nn.seq2seq import Seq2Seq
from gptcore.nn.torch_session import TorchSession
from gptcore.nn.torch_translator import TorchTranslator
from gptcore.translation.search import translate
from training.__main__ import main
from training.data.shards.folder import load_shards
from training.evaluation.subject import TorchModel
from training.jobs.translation import open_task
from training.loop import train
from training.plan.pilot import Speed, pilot_bits_per_byte
from training.run.config import TrainConfig
from training.run.directory import Run
from training.step import accumulate_gradients
from training.tasks.language import LanguageModelling

SETTINGS = {"dropout": 0.1, "compile": "off", "steps": 4, "eval_every": 2, "save_every": 2}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """The device that everything runs on while a test asks for this."""
    device = torch.device("cuda")
    for module in (training.state, training.evaluation.subject):
        monkeypatch.setattr(module, "pick_device", lambda: device)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2**36, 2**37))
    with PretendedDevice():
        yield device


def test_the_pretended_device_refuses_what_a_real_one_refuses() -> None:
    with PretendedDevice():
        here, there = torch.ones(2), torch.ones(2, device="cuda")
        assert there.device.type == "cuda" and (2 * there).sum().device.type == "cuda"
        for mixed in (lambda: here + there, lambda: torch.cat([here, there]), lambda: there @ here):
            with pytest.raises(RuntimeError, match="on cuda:0 and on the cpu"):
                mixed()
        for read in (there.numpy, lambda: np.asarray(there)):
            with pytest.raises(TypeError, match=r"use \.cpu\(\) first"):
                read()
        assert (here + there.cpu()).numpy().tolist() == [2, 2] == (there + 1).tolist()
        layer = nn.Linear(2, 2).to("cuda")
        layer(there).sum().backward()
        assert layer.weight.grad.device.type == "cuda"
        with pytest.raises(RuntimeError, match="linear: tensors on"):
            layer(here)


def newest(run: Run) -> Checkpoint:
    return newest_checkpoint(run.checkpoints)[0]


def assert_same_end(one: Run, other: Run) -> None:
    for ours, theirs in zip(newest(one)[1:3], newest(other)[1:3]):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_a_run_is_trained_measured_paused_and_resumed_on_a_gpu(
    gpu: torch.device, chats: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(quick_words(chats, tmp_path / "whole", **SETTINGS)) == 0
    assert "on cuda in float32" in capsys.readouterr().out
    whole = Run.load(tmp_path / "whole")
    assert list(whole.evaluations()) == [2, 4] and [step for step, _ in whole.samples()] == [2, 4]
    assert all("mfu" in line for line in whole.metrics() if "loss" in line)

    paused = dataclasses.replace(whole, path=tmp_path / "paused")
    task = LanguageModelling(paused, load_shards(Path(paused.data.shards)))
    assert train(paused, Interrupted(task, 3)) is None
    assert main(["--out", str(paused.path), "--resume"]) == 0
    assert_same_end(paused, whole)
    assert paused.samples() == whole.samples()


@pytest.mark.slow
def test_a_translator_is_trained_measured_paused_and_resumed_on_a_gpu(
    gpu: torch.device, pairs_file: Path, tmp_path: Path
) -> None:
    settings = TINY_TRANSLATOR | {"n_layer": 1, "n_embd": 32, "steps": 3, "eval_every": 3}
    words = ["translate", str(pairs_file), *set_options(**settings, dropout=0.1, dtype="float32")]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    whole = Run.load(tmp_path / "whole")
    assert list(whole.evaluations()) == [3]

    paused = dataclasses.replace(whole, path=tmp_path / "paused")
    assert train(paused, Interrupted(open_task(whole), 2)) is None
    assert main(["translate", "--out", str(paused.path), "--resume"]) == 0
    assert_same_end(paused, whole)


@pytest.mark.slow
def test_what_is_kept_of_the_weights_before_is_measured_on_a_gpu(
    gpu: torch.device, run: Run, chats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[str] = []

    def evaluate(task: LanguageModelling, model: GPT, measure=LanguageModelling.evaluate):
        devices.append(next(model.parameters()).device.type)
        return measure(task, model)

    monkeypatch.setattr(LanguageModelling, "evaluate", evaluate)
    chosen = {"dtype": "float32", "compile": "off", "learning_rate": 1e-5}
    settings = set_options(steps=2, eval_every=2, batch_size=4, **chosen)
    words = [str(chats), "--init", str(run.path), *settings]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert Run.load(tmp_path / "run").summary()["kept"] == 0.4
    assert devices == ["cuda"] * 3  # of the training, then unmixed, then mixed


def test_a_run_that_breaks_on_a_gpu_leaves_its_evidence(
    gpu: torch.device, chats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(*batch: object) -> float:
        return accumulate_gradients(*batch) * float("nan")

    monkeypatch.setattr(training.step, "accumulate_gradients", spoilt)
    assert main(quick_words(chats, tmp_path / "run", **SETTINGS)) == 2
    assert (tmp_path / "run" / "evidence" / "step-3" / "batch.safetensors").is_file()


def on(device: torch.device, run: Run) -> GPT | Seq2Seq:
    """The model that a run has trained, on a device."""
    model, checkpoint = build_model(run.model), newest(run)
    load_weights(model, checkpoint.model, checkpoint.path)
    return model.eval().to(device)


CPU = torch.device("cpu")


@pytest.mark.parametrize("form", [TorchSession, UncachedTorchSession])
def test_a_decoder_says_on_a_gpu_what_it_says_on_the_cpu(
    gpu: torch.device, run: Run, form: type[TorchSession]
) -> None:
    def said(device: torch.device) -> list[int]:
        session = form(on(device, run))
        ids = [int(session.prefill([1, 2, 3]).argmax())]
        for _ in range(8):
            ids.append(int(session.step(ids[-1]).argmax()))
        return ids

    assert said(gpu) == said(CPU)


def test_a_run_is_evaluated_on_a_gpu(gpu: torch.device, run: Run) -> None:
    ids = np.arange(7, 60)
    model = TorchModel(run)
    assert next(model.network.parameters()).device.type == "cuda"
    expected = on(CPU, run)(
        torch.from_numpy(ids)[None], torch.ones(1, len(ids)), torch.arange(len(ids))[None]
    )[0]
    np.testing.assert_allclose(model.logits(ids), expected[0].detach().numpy(), atol=1e-5)
    first, *_ = model.answer(Request([1, 2], Sampling(temperature=0)))
    likeliest = int(model.logits(np.array([1, 2]))[-1].argmax())
    assert first.token_ids == (likeliest,) or first.finish == "end"


@pytest.mark.slow
def test_a_translator_says_on_a_gpu_what_it_says_on_the_cpu(
    gpu: torch.device, translation_run: Run
) -> None:
    task = open_task(translation_run)
    texts = [
        translate(
            TorchTranslator(on(device, translation_run), task.source_tokenizer, task.tokenizer),
            task.validation[0][0],
            beams=2,
        ).text
        for device in (gpu, CPU)
    ]
    assert texts[0] == texts[1] != ""


def test_an_inspector_sees_on_a_gpu_what_it_sees_on_the_cpu(
    gpu: torch.device, run: Run, translation_run: Run
) -> None:
    def seen(device: torch.device) -> list[Tensor]:
        ids = torch.arange(7, device=device)[None]
        decoder = InspectGPT(on(device, run))(ids)
        translator = InspectSeq2Seq(on(device, translation_run))(ids, ids[:, :3])
        return [tensor.detach().cpu() for tensor in (*decoder.values(), *translator.values())]

    for there, here in zip(seen(gpu), seen(CPU)):
        torch.testing.assert_close(there, here)


def test_a_plan_is_measured_on_a_gpu(gpu: torch.device, run: Run) -> None:
    model = dataclasses.replace(PRESETS["tiny"], n_layer=1, block_size=64)
    training = TrainConfig(batch_size=4, micro_batch_size=4, steps=3, dtype="float32")
    speed = Speed()
    speed.measure(1, model, training, seconds=0.0)
    assert speed.passes[1] > 0 and speed.updates[1] > 0
    shards = load_shards(Path(run.data.shards))
    assert 0 < pilot_bits_per_byte(shards, model, training) < 10
