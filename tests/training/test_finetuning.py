"""Fine-tuning: `--init` of a model folder with a tokenizer of its own, whole or with adapters."""

import json
import shutil
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from itertools import cycle
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
import torch
from chatml import CHAT, CHATML, FOREIGN, text_of
from conftest import NANO, Refused
from safetensors.torch import load_file
from trained import once, set_options

from export.__main__ import main as export_main
from export.folder.write import own_template, start_of, write_family
from export.formats.hugging_face import transformers_config
from export.formats.weights import write_weights
from gptcore.bundle import VARIANTS, load_bundle, read_facts, write_facts
from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.facts import Imported, ModelFacts, Start
from gptcore.nn import build_model, count_parameters
from gptcore.nn.checkpoint import load_weights
from gptcore.nn.gpt import whole_sequence
from gptcore.nn.llama import to_llama
from gptcore.system.files import write_json
from gptcore.text.chat_format import ChatFormat
from gptcore.text.chat_template import messages_of, render
from gptcore.text.tokenizer import Tokenizer
from training.__main__ import main
from training.data.corpus import tokenizer_with_system
from training.data.rows import IGNORED, Rows
from training.data.sources import shards_of
from training.evaluation.validation import questions, sample_prompts
from training.jobs import keeping
from training.lora import add_adapters
from training.machine.memory import kept_bytes
from training.plan.given import CPU_KEPT, fitted_row, in_memory
from training.run.base import first_weights, keep_family, open_base, read_base, whole_weights
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import Base
from training.state import write_adapter

TEMPLATE = (  # that of tests/chatml.py
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}{% endif %}"
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SYSTEM = {"role": "system", "content": "Be brief."}
CONFIG = ModelConfig(
    vocab_size=259, block_size=1024, n_layer=2, n_head=4, n_kv_head=2, n_embd=32, n_inner=64
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of another family, with random weights and without its graph."""

    def make(folder: Path) -> None:
        torch.manual_seed(1)
        folder.mkdir()
        model = build_model(CONFIG)
        write_weights(to_llama(dict(model.named_parameters()), CONFIG).items(), folder)
        FOREIGN.save(folder)
        for name, content in {
            "config.json": transformers_config(CONFIG, {})
            | {"their": 1, "max_position_embeddings": 1024},
            "tokenizer_config.json": {"chat_template": TEMPLATE},
            # as of a shipped folder, which has no fp32
            "genai_config.json": {
                "model": {"eos_token_id": 2, "decoder": {"filename": "onnx/model_q8.onnx"}}
            },
            "tokenizer.json": {"theirs": True},
        }.items():
            (folder / name).write_text(json.dumps(content))
        (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Theirs\n")
        imported = Imported("Theirs", measured_on="a text")
        facts = ModelFacts("theirs", True, count_parameters(model), CONFIG, imported=imported)
        write_facts(folder, facts)

    return once(tmp_path_factory, "theirs", make)


SETTINGS = {"steps": 4, "batch_size": 2, "save_every": 2, "eval_every": 4, "dtype": "float32"}


def tune(chats: Path, init: Path, out: Path, *options: str, **settings: Any) -> int:
    words = [str(chats), "--init", str(init), "--out", str(out)]
    return main([*words, *options, *set_options(**SETTINGS | settings)])


@pytest.fixture(scope="module")
def tuned(chats: Path, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of adapters."""

    def make(out: Path) -> None:
        assert tune(chats, base, out, "--lora", "4") == 0

    return Run.load(once(tmp_path_factory, "run-tuned", make))


@pytest.mark.slow
def test_a_time_may_limit_it(chats: Path, base: Path, tmp_path: Path) -> None:
    words = [str(chats), "--init", str(base), "--minutes", "0.1", "--out", str(tmp_path / "run")]
    assert main([*words, *set_options(dtype="float32", batch_size=1, row_tokens=64)]) == 0
    run = Run.load(tmp_path / "run")
    assert run.train.steps >= 20 and (run.path / "summary.json").exists()


@pytest.fixture(scope="module")
def unmixed(chats: Path, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that keeps nothing of the weights before it."""
    out = tmp_path_factory.mktemp("unmixed") / "run"
    assert tune(chats, base, out, keep=0.0) == 0
    return Run.load(out)


@pytest.mark.slow
@pytest.mark.parametrize(("costs", "share"), [([0.04, 0.02], 0.2), ([0.9, 0.5, 0.1], 0.0)])
def test_what_it_knew_is_kept_as_far_as_that_costs_little(
    chats: Path,
    base: Path,
    unmixed: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    costs: list[float],
    share: float,
) -> None:
    left = cycle(costs)
    monkeypatch.setattr(keeping, "risen", lambda *_: next(left))
    assert tune(chats, base, tmp_path / "run") == 0
    run, own = Run.load(tmp_path / "run"), unmixed.newest_checkpoint().model
    before, after = first_weights(run), run.best_checkpoint()
    assert run.train.keep == 0.4 and run.summary()["kept"] == share
    for name, mean in after.model.items():
        wanted = share * before[name] + (1 - share) * own[name]
        assert torch.allclose(mean, wanted, atol=1e-6), name
    measured = run.evaluations()[run.train.steps]["bits_per_byte"]
    assert run.summary()["bits_per_byte"] == measured

    # As if it had been stopped before it wrote the share.
    write_json(run.path / "summary.json", {k: v for k, v in run.summary().items() if k != "kept"})
    assert main(["--out", str(run.path), "--resume"]) == 0
    assert run.summary()["kept"] == share
    again = run.best_checkpoint().model
    assert all(torch.equal(again[name], after.model[name]) for name in again)


def test_the_targets_of_a_batch_are_the_replies(tuned: Run, chats: Path) -> None:
    rows = Rows(shards_of(tuned), "train", 512)
    _, y = rows.batch(range(len(rows)))
    learned = text_of(y[y != IGNORED].tolist())
    said = [
        m["content"]
        for line in chats.read_text().splitlines()
        for m in json.loads(line)["messages"]
        if m["role"] == "assistant"
    ]
    found = learned.split("<|im_end|>")
    assert len(found) > 200 and "im_start" not in learned
    whole = [text for text in found if text in said]
    assert len(whole) > 0.9 * len(found)  # a row may begin within a reply


def test_rows_of_a_long_context_are_as_long_as_the_conversations(tuned: Run) -> None:
    shards = shards_of(tuned)
    lengths = np.diff(shards.split("train")[0].starts)
    row = fitted_row(shards, block_size=1 << 15)
    assert np.mean(lengths <= row) >= 0.95 > np.mean(lengths <= row // 2)
    assert fitted_row(shards, block_size=row) == fitted_row(shards, block_size=256) == 0


def test_a_micro_batch_takes_no_more_than_it_gains_from() -> None:
    smollm2 = ModelConfig(
        vocab_size=49152,
        block_size=512,
        n_layer=30,
        n_head=9,
        n_kv_head=3,
        n_embd=576,
        n_inner=1536,
    )
    given = TrainConfig(batch_size=8, micro_batch_size=8, dtype="bfloat16")
    n_rows = in_memory(given, smollm2).micro_batch_size
    assert 1 <= n_rows < 8 and kept_bytes(smollm2, n_rows, 512, 2, is_fused=False) <= CPU_KEPT
    assert in_memory(given, CONFIG).micro_batch_size == 8


def test_a_micro_batch_is_the_largest_part_of_the_batch_that_fits(monkeypatch) -> None:
    each = kept_bytes(CONFIG, 1, CONFIG.block_size, 4, is_fused=False)
    monkeypatch.setattr("training.plan.given.room", lambda device, held: 7.5 * each)
    for batch, wanted, chosen in ((24, 24, 6), (21, 21, 7), (13, 13, 1), (32, 4, 4)):
        given = TrainConfig(batch_size=batch, micro_batch_size=wanted, dtype="float32")
        assert in_memory(given, CONFIG).micro_batch_size == chosen


def test_samples_and_questions_follow_the_foreign_format(tuned: Run) -> None:
    rows = Rows(shards_of(tuned), "val", 512)
    prompt = sample_prompts(rows)[0]
    assert prompt.asks and text_of(prompt.ids).endswith("<|im_start|>assistant\n")
    assert "<|im_start|>" not in "".join(questions(rows))
    assert tuned.samples()


def test_a_checkpoint_holds_the_adapters_alone_and_the_run_names_its_base(
    tuned: Run, base: Path
) -> None:
    checkpoint = tuned.best_checkpoint()
    assert all(".lora_" in name for name in checkpoint.model)
    assert tuned.base is not None
    assert tuned.base.path == str((base / "model.safetensors").resolve())
    assert tuned.base.sha256 == read_facts(base).sha256["model.safetensors"]
    assert tuned.train.lora == 4 and tuned.train.optimizer == "adamw"
    assert tuned.model == CONFIG
    assert tuned.train.gradient_checkpointing == "off"
    kept = json.loads((tuned.path / "family" / "tokenizer_config.json").read_text())
    assert kept == {"chat_template": TEMPLATE}


def test_the_whole_weights_of_a_run_of_adapters_are_those_that_were_measured(tuned: Run) -> None:
    checkpoint = tuned.best_checkpoint()
    assert tuned.base
    whole, before = whole_weights(tuned, checkpoint), read_base(tuned.base, CONFIG)
    plain, measured = build_model(CONFIG), build_model(CONFIG)
    load_weights(measured, before, "before")
    add_adapters(measured, tuned.train.lora)
    parameters = dict(measured.named_parameters())
    with torch.no_grad():
        for name, tensor in checkpoint.model.items():
            parameters[name].copy_(tensor)
        load_weights(plain, whole, "whole")
        inputs = whole_sequence(torch.arange(40)[None])
        assert (plain(**inputs)[0] - measured(**inputs)[0]).abs().max() < 1e-5
    assert torch.equal(whole["embed.weight"], before["embed.weight"])
    changed = {name for name, tensor in whole.items() if not torch.equal(tensor, before[name])}
    assert "blocks.0.feed_forward.down.weight" in changed
    adapter = load_file(tuned.path / "adapter" / "adapter_model.safetensors")
    name = "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"
    assert torch.equal(adapter[name], checkpoint.model["blocks.0.feed_forward.down.lora_b"])


def test_the_adapter_is_that_of_the_best_step_also_before_the_run_is_complete(
    tuned: Run, tmp_path: Path
) -> None:
    run = Run.load(shutil.copytree(tuned.path, tmp_path / "run"))
    run = replace(run, data=replace(run.data, held_out_tokens=5000))
    (run.path / "summary.json").unlink()
    for step, bits_per_byte in ((2, 1.0), (4, 2.0)):
        run.log(step=step, val_loss=1.0, bits_per_byte=bits_per_byte)
    write_adapter(run)
    written = load_file(run.path / "adapter" / "adapter_model.safetensors")
    best = load_file(run.checkpoints / "step-2" / "model.safetensors")
    name = "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"
    assert torch.equal(written[name], best["blocks.0.feed_forward.down.lora_b"])


@pytest.mark.parametrize("weights", [VARIANTS["q8"], "step-4/model.safetensors"])
def test_an_adapter_of_a_base_that_peft_cannot_load_says_so(
    tuned: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: str
) -> None:
    run = Run.load(shutil.copytree(tuned.path, tmp_path / "run"))
    write_adapter(run)
    assert not capsys.readouterr().out
    write_adapter(replace(run, base=Base(str(tmp_path / "base" / weights), "")))
    named = json.loads((run.path / "adapter" / "adapter_config.json").read_text())
    folder, said = named["base_model_name_or_path"], capsys.readouterr().out
    assert f"{folder}, which PEFT cannot load" in said and "python -m export" in said


@pytest.mark.parametrize("is_short", [False, True], ids=["as it began", "as it is told"])
def test_a_resumed_run_of_adapters_is_bit_identical(
    tuned: Run, chats: Path, base: Path, tmp_path: Path, is_short: bool
) -> None:
    out = tmp_path / "run-tuned"
    shutil.copytree(tuned.path, out)
    for name in ("summary.json", "lock"):
        (out / name).unlink()
    shutil.rmtree(out / "checkpoints" / "step-4")
    if is_short:
        assert main(["--out", str(out), "--resume"]) == 0
    else:
        assert tune(chats, base, out, "--lora", "4", "--resume") == 0
    again = Run.load(out).newest_checkpoint()
    once = Run.load(tuned.path).newest_checkpoint()
    assert again.facts["step"] == once.facts["step"] == 4
    for part in ("model", "state"):
        ours, theirs = getattr(again, part), getattr(once, part)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_resumed_run_of_adapters_needs_no_base_to_be_named(
    tuned: Run, chats: Path, tmp_path: Path, refused: Refused
) -> None:
    words = ("--out", tuned.path, "--resume", "--lora")
    assert "is complete already" in refused(main, *words, 4)
    assert "lora=8, but the run in" in refused(main, *words, 8)
    for new in (("--lora", 4), ("--set", "keep=0.4")):
        said = refused(main, chats, "--out", tmp_path / "new", "--resume", *new)
        assert "name it with --init" in said


def test_a_base_that_was_moved_together_with_the_run_is_found(
    tuned: Run, base: Path, tmp_path: Path
) -> None:
    shutil.copytree(base, tmp_path / "models" / "base")
    run = Run.load(shutil.copytree(tuned.path, tmp_path / "runs" / "tuned"))
    moved = replace(tuned.base, path="/gone/project/models/base/model.safetensors")
    ours, theirs = first_weights(replace(run, base=moved)), first_weights(tuned)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    gone = replace(tuned.base, path="/gone/elsewhere/model.safetensors")
    with pytest.raises(UserError, match=r"/gone/elsewhere.*is missing"):
        first_weights(replace(run, base=gone))


def test_weights_that_a_run_may_still_delete_are_no_base(tuned: Run, tmp_path: Path) -> None:
    stopped, unmixed = (shutil.copytree(tuned.path, tmp_path / name) for name in ("a", "b"))
    (stopped / "summary.json").unlink()
    replace(tuned, path=unmixed, train=replace(tuned.train, lora=0, keep=0.4)).write_config()
    for path in (stopped, unmixed):
        with pytest.raises(UserError, match=f"not complete: .* --out {path} --resume.*or export"):
            open_base(path)


def test_a_base_that_changed_is_noticed(
    tuned: Run, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(tuned.path, out)
    other = tmp_path / "base"
    shutil.copytree(base, other)
    text = (out / "config.json").read_text()
    run = Run.load(out)
    assert run.base is not None and run.base.path in text
    replace(run, base=replace(run.base, path=str(other / "model.safetensors"))).write_config()
    assert main(["doctor", str(out)]) == 0
    with open(other / "model.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    capsys.readouterr()
    assert main(["doctor", str(out)]) != 0
    assert "its sha256 differs" in capsys.readouterr().out
    (other / "model.safetensors").unlink()
    assert export_main([str(out), "--out", str(tmp_path / "model")]) == 2
    assert "which is missing" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--lora", "4"], "--init"),
        (["--init", "BASE", "--lora", "0"], "--lora 0 is out of range: choose 1 to 32"),
        (["--init", "BASE", "--lora", "4", "--preset", "nano"], "drop --preset and --tokenizer"),
        (["--init", "BASE", "--set", "row_tokens=2048"], "at most block_size=1024"),
        (["--init", "BASE", "--set", "row_tokens=1"], "choose 0, or at least 2"),
        (["--init", "BASE", "--lora", "4", "--set", "parallel=fsdp"], "parallel=ddp"),
        (["--init", "BASE", "--lora", "4", "--set", "norm=layernorm"], "models of Llama's shape"),
        (["--init", "HF"], "python -m export --from-hf"),
        (["--init", "ENDLESS"], "no special token ends a reply in its chat format"),
        (["--init", "RUN", "--lora", "4"], "export that run, and name the model folder"),
        (["--init", "RUN", "--set", "keep=0.4"], "keep=0.4 needs weights in a file"),
        (["--tokenizer", "BASE"], "with --init"),
        (["--init", "BASE", "--depth", "2"], "--init has a shape already: drop --depth"),
    ],
)
def test_mistakes_are_told_in_a_line(
    options: list[str],
    said: str,
    chats: Path,
    base: Path,
    tuned: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = tmp_path / "hf"
    theirs.mkdir()
    (theirs / "config.json").write_text('{"model_type": "llama"}')
    endless = shutil.copytree(base, tmp_path / "endless")
    Tokenizer(FOREIGN.ranks, special=FOREIGN.special, chat=ChatFormat()).save(endless)
    write_facts(endless, read_facts(base))
    places = {"BASE": base, "HF": theirs, "RUN": tuned.path, "ENDLESS": endless}
    words = [str(places.get(word, word)) for word in options]
    assert main([str(chats), "--out", str(tmp_path / "out"), *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_of_adapters_it_is_said_that_nothing_is_kept_and_no_other_rule_is_shown(
    chats: Path, tuned: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(chats), "--init", str(tuned.path), "--out", str(tmp_path / "run"), "--plan"]
    settings = set_options(dtype="float32", batch_size=1, row_tokens=64)
    assert main([*words, "--verbose", "--minutes", "5", *settings]) == 0
    said = capsys.readouterr().out
    assert "note: none of the weights before is mixed in, as that needs weights in a file" in said
    assert "training: steps=" in said and "the vocabulary grows" not in said
    assert main([*words, *settings, "--set", "keep=0"]) == 0
    assert "is mixed in, as" not in capsys.readouterr().out


def test_what_a_run_without_a_checkpoint_took_from_another_model_does_not_stay(
    base: Path, chats: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    keep_family(base, out)  # and then it was killed
    assert (out / "family" / "tokenizer.json").is_file()
    assert main([str(chats), "--preset", "tiny", "--out", str(out), *set_options(**SETTINGS)]) == 0
    assert not (out / "family").exists()


def test_the_system_message_of_all_chats_is_the_tuned_models_here_and_elsewhere(
    base: Path, tmp_path: Path
) -> None:
    """A newcomer's model had learned it, and then nobody gave it to the model."""
    usual = 'You are "Ada", an engineer\'s friend.\nBe kind.'
    chats = [
        [{"role": "system", "content": usual}, *messages_of([f"What is {n}?", f"It is {n}."])]
        for n in range(20)
    ]
    lines = [json.dumps({"messages": chat}) for chat in chats]
    lines.append(json.dumps({"messages": messages_of(["Hi", "Hello!"])}))  # one without it
    (tmp_path / "chats.jsonl").write_text("\n".join(lines))
    assert tune(tmp_path / "chats.jsonl", base, tmp_path / "run", "--lora", "4", steps=1) == 0
    run = Run.load(tmp_path / "run")
    assert run.tokenizer.chat == CHATML.with_usual_system(usual)
    (tmp_path / "model").mkdir()
    write_family(run, tmp_path / "model")
    written = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    template = jinja2.Environment().from_string(written["chat_template"])
    for chat in ([{"role": "user", "content": "Hi"}], chats[0], [SYSTEM, *chats[0][1:]]):
        text = template.render(messages=chat, add_generation_prompt=True)
        assert text == run.tokenizer.show(render(chat, run.tokenizer, prompt=True))
        assert text.count("<|im_start|>system") == 1 and (usual in text) == (SYSTEM not in chat)


def test_a_familys_own_system_message_is_another_than_its_end() -> None:
    """Most chats of others have the end of Qwen2.5's alone."""
    usual = "You are Qwen. You are a helpful assistant."
    template = TEMPLATE.replace("Be helpful.", usual)
    form = CHATML.with_usual_system(usual)
    assert own_template(template, form) == template
    learned = own_template(template, CHATML.with_usual_system("You are a helpful assistant."))
    chat = [{"role": "user", "content": "Hi"}]
    text = jinja2.Environment().from_string(learned).render(messages=chat)
    assert "\nYou are a helpful assistant.<" in text and "Qwen" not in text


def test_a_model_of_ours_with_a_usual_system_message_is_of_no_family(tmp_path: Path) -> None:
    folder = shutil.copytree(NANO, tmp_path / "nano")
    tokenizer_with_system(Tokenizer.load(NANO), "Be kind.").save(folder)
    keep_family(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_of_adapters_is_exported_with_the_files_of_its_family(
    tuned: Run, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    assert export_main([str(tuned.path), "--out", str(out)]) == 0
    bundle = load_bundle(out)
    assert bundle.tokenizer.chat == CHATML
    config = json.loads((out / "config.json").read_text())
    assert config["their"] == 1 and config["max_position_embeddings"] == 1024
    name = "tokenizer.json"
    assert (out / name).read_bytes() == (tuned.path / "family" / name).read_bytes()
    tokens = json.loads((out / "tokenizer_config.json").read_text())
    assert tokens == {"chat_template": TEMPLATE, "model_max_length": 1024}
    genai = json.loads((out / "genai_config.json").read_text())["model"]
    assert (genai["decoder"]["filename"], genai["eos_token_id"]) == ("onnx/model.onnx", 2)
    card = (out / "README.md").read_text()
    assert "license: apache-2.0" in card and "Fine-tuned from Theirs." in card
    assert bundle.facts.imported and bundle.facts.training
    weights = load_file(out / "model.safetensors")
    expected = to_llama(whole_weights(tuned, tuned.best_checkpoint()), CONFIG)
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


@pytest.fixture(scope="module")
def mine(chats: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of adapters to a model of ours."""

    def make(out: Path) -> None:
        with redirect_stdout(StringIO()) as said:
            assert tune(chats, NANO, out, "--lora", "4", steps=8, learning_rate=0.02) == 0
        assert "adapters of rank 4" in said.getvalue()

    return once(tmp_path_factory, "run-mine", make)


@pytest.mark.slow
def test_our_own_model_is_made_somebodys_by_the_command_line(
    chats: Path, mine: Path, tmp_path: Path
) -> None:
    model, further = tmp_path / "model", tmp_path / "further"
    suite = tmp_path / "suite.toml"
    suite.write_text('[greeting]\nconversations = [{ user = ["Hello!"], want = "hello|hi" }]\n')
    words = ["--data", str(chats), "--suite", str(suite), "--seeds", "1"]
    assert main(["evaluate", str(mine), *words]) == 0
    assert export_main([str(mine), "--out", str(model)]) == 0
    assert (model / "tokenizer.json").read_bytes() == (NANO / "tokenizer.json").read_bytes()
    card = (model / "README.md").read_text()
    assert "The training began with the weights of gptcore nano (licence: mit)." in card
    assert tune(chats, model, further, steps=2, eval_every=2) == 0  # all weights, of an export
    assert tune(chats, mine, tmp_path / "again", steps=2, eval_every=2) == 0  # and of adapters
    assert start_of(Run.load(further)) == Start("model"), "its card names no licence"


@pytest.mark.peers
def test_peft_loads_the_adapter_and_computes_the_same(mine: Path) -> None:
    from peft import PeftModel
    from transformers import LlamaForCausalLM

    run = Run.load(mine)
    ours = build_model(run.model).eval()
    plain = LlamaForCausalLM.from_pretrained(NANO, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(plain, mine / "adapter").eval()
    ids = torch.tensor([render(CHAT, run.tokenizer)])
    with torch.no_grad():
        load_weights(ours, whole_weights(run, run.best_checkpoint()), "merged")
        mine, peers = ours(**whole_sequence(ids))[0], theirs(ids).logits
        assert (mine - peers).abs().max() < 1e-4
        with theirs.disable_adapter():
            assert (theirs(ids).logits - peers).abs().max() > 0.01
        merged = theirs.merge_and_unload()(ids).logits
    assert (mine - merged).abs().max() < 1e-4
