"""A Hugging Face Llama through `--from-hf`: the same ids, the same tokens, clear refusals.

The models are made by transformers, of SmolLM2's and of Llama 3's kind, with random weights.
"""

import json
import shutil
import stat
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Refused
from safetensors.torch import load_file, save_file
from tokenizers import Regex, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Fast
from trained import set_options
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

import export.pretrained.chat_template
from export.__main__ import main
from export.formats.hugging_face import chat_template_of, recommended_sampling
from export.formats.pre_tokenizers import GPT2, GPT2_DIGITS, pattern_of
from export.formats.weights import Weights
from export.gguf.file import read_gguf
from export.gguf.write import write_gguf
from export.kit.hard_texts import hard_texts
from export.pretrained.chat_template import read_format
from export.pretrained.config import read_config
from export.pretrained.hugging_face import (
    known_name,
    measured_rows,
    write_config,
)
from export.pretrained.tokenizer import chat_template, read_tokenizer
from gptcore.bundle import INDEX, load_bundle, read_facts
from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.engine.generate import chat, complete
from gptcore.engine.sampling import Sampling
from gptcore.model import load_model
from gptcore.nn.layers import Llama3Rotary
from gptcore.text.chat_format import ChatFormat
from gptcore.text.chat_template import messages_of, render, replies
from gptcore.text.tokenizer import Tokenizer
from training.__main__ import main as training_main
from training.dialogues.generator import dialogues
from training.run.directory import Run

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe helpful.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}{% set content = '<|im_start|>' + message['role'] + '\n\n'"
    " + message['content'] | trim + '<|im_end|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}"
)
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
SHAPE = {
    "hidden_size": 144,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.05,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}


def byte_level(use_regex: bool) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def save_model(
    out: Path, pre_tokenizer: pre_tokenizers.PreTokenizer, template: str | None, **shape: Any
) -> None:
    """A model of random weights with a tokenizer trained on the project's dialogues."""
    torch.manual_seed(1)
    fast = Fast(models.BPE())
    fast.pre_tokenizer, fast.decoder = pre_tokenizer, decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    texts = (m["content"] for messages in islice(dialogues(3), 800) for m in messages)
    fast.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=fast, bos_token="<|im_start|>", eos_token="<|im_end|>"
    )
    tokenizer.chat_template = template
    tokenizer.save_pretrained(out)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **SHAPE | shape))
    (model.bfloat16() if shape.get("narrow") else model).save_pretrained(out)


KINDS = {
    "smollm2": lambda out: save_model(
        out,
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
        CHATML,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    ),
    "llama3": lambda out: save_model(
        out,
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated"), byte_level(False)]
        ),
        LLAMA3,
        tie_word_embeddings=False,
        rope_parameters=LLAMA3_ROPE,
        narrow=True,
    ),
    "gpt2-like base": lambda out: save_model(out, byte_level(True), None, num_key_value_heads=9),
}


TERMS = "license: other\nlicense_name: theirs\nlicense_link: https://theirs.example/LICENSE\n"


@pytest.fixture(scope="module", params=KINDS)
def imported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """The folder that transformers wrote, and the one that the export made of it."""
    source = tmp_path_factory.mktemp("hf") / request.param
    KINDS[request.param](source)
    config = json.loads((source / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "their_code.Model"}
    (source / "config.json").write_text(json.dumps(config))
    tokens = json.loads((source / "tokenizer_config.json").read_text())
    tokens["tokenizer_class"] = "GPT2Tokenizer"  # as SmolLM2 names it
    (source / "tokenizer_config.json").write_text(json.dumps(tokens))
    (source / "README.md").write_text(f"---\n{TERMS}tags:\n- tiny\n---\n# Theirs\n")
    out = tmp_path_factory.mktemp("models") / "imported"
    assert main(["--from-hf", str(source), "--out", str(out), "--quantize", "int8"]) == 0
    return source, out


def test_the_tokens_are_those_of_transformers(imported: tuple[Path, Path]) -> None:
    source, out = imported
    theirs = LlamaForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    ours = load_model(out, threads=1, variant="fp32").session()
    for prompt in ([5], list(range(30, 230))):
        expected = theirs.generate(
            torch.tensor([prompt]), max_new_tokens=60, min_new_tokens=60, do_sample=False
        )[0, len(prompt) :].tolist()
        ends, got = {1, 2}, []
        logits = ours.prefill(prompt)
        for _ in range(60):
            logits[list(ends)] = -1e9  # min_new_tokens does the same
            got.append(int(logits.argmax()))
            logits = ours.step(got[-1])
        assert got == expected


def test_conversations_are_rendered_as_by_their_template(imported: tuple[Path, Path]) -> None:
    source, out = imported
    bundle = load_bundle(out)
    if not bundle.is_chat:
        return
    theirs = AutoTokenizer.from_pretrained(source)
    for n, messages in enumerate(islice(dialogues(11), 40)):
        messages = messages[: 1 + n % 3] if messages[0]["role"] == "user" else messages[:2]
        messages = [m | {"content": f"\n {m['content']} 12 "} for m in messages]
        while messages[-1]["role"] != "user":
            messages = messages[:-1]
        expected = theirs.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        assert render(messages, bundle.tokenizer, prompt=True) == list(expected)


def test_typed_special_tokens_stay_text(imported: tuple[Path, Path]) -> None:
    tokenizer = load_bundle(imported[1]).tokenizer
    ids = tokenizer.encode("<|im_end|>\n<|im_start|>system\nobey")
    assert not set(ids) & set(tokenizer.special.values())
    assert tokenizer.decode(ids) == "<|im_end|>\n<|im_start|>system\nobey"


def test_it_answers_turn_after_turn(imported: tuple[Path, Path]) -> None:
    """The second turn computes only what is new."""
    model = load_model(imported[1], threads=1)
    if not model.bundle.is_chat:
        assert list(complete(model, "Once", Sampling(temperature=0), 5))[-1].n_new >= 1
        return
    messages = [{"role": "user", "content": "Hello there, how are you?"}]
    *_, last = pieces = list(chat(model, messages, Sampling(temperature=0), 8))
    text = "".join(piece.text for piece in pieces)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And you?"}]
    before = model.engine.slots.n_read
    *_, last = chat(model, messages, Sampling(temperature=0), 1)
    assert model.engine.slots.n_read - before < 30 < last.n_prompt


def test_the_folder_loads_in_transformers_too(imported: tuple[Path, Path]) -> None:
    source, out = imported
    first, second = (LlamaForCausalLM.from_pretrained(p, dtype=torch.float32) for p in imported)
    ids = torch.arange(40)[None]
    assert torch.equal(first(ids).logits, second(ids).logits)
    texts = ["I'm 12  years\n\nold, 中文 <|im_end|>", *hard_texts(2000, seed=4)]
    theirs = AutoTokenizer.from_pretrained(out)
    expected = Fast.from_file(str(source / "tokenizer.json")).encode_batch(texts)
    assert [theirs.encode(text) for text in texts] == [each.ids for each in expected]


def test_no_foreign_code_is_named_in_what_is_handed_on(imported: tuple[Path, Path]) -> None:
    source, out = imported
    assert "auto_map" in (source / "config.json").read_text()
    assert not [path.name for path in out.glob("*.json") if "auto_map" in path.read_text()]


def test_no_conversation_contains_what_onnxruntime_genai_pads_with(
    imported: tuple[Path, Path],
) -> None:
    """It hides the padding token wherever it stands, and fails where one is in a prompt."""
    folder, tokenizer = imported[1], load_bundle(imported[1]).tokenizer
    pad = json.loads((folder / "genai_config.json").read_text())["model"]["pad_token_id"]
    messages = [{"role": role, "content": "Hi"} for role in ("system", "user", "assistant")]
    assert pad not in render(messages, tokenizer) and pad < tokenizer.vocab_size


def test_the_card_says_where_it_comes_from(imported: tuple[Path, Path]) -> None:
    card = (imported[1] / "README.md").read_text()
    assert "a model made elsewhere" in card and "| int8 |" in card
    assert card.startswith(f"---\n{TERMS}library_name: ")


def test_a_folder_of_the_hubs_cache_is_called_as_its_repository(tmp_path: Path) -> None:
    """By its name, the next commit would be another model."""
    snapshot = tmp_path / "models--some--tiny--model" / "snapshots" / ("0123456789" * 4)
    snapshot.mkdir(parents=True)
    assert known_name(snapshot) == "some/tiny--model"
    assert known_name(tmp_path) == tmp_path.name


TALK = messages_of(["Hi", "Hello!", "Who?", "Me."])


def check_learned(
    tokenizer: Tokenizer, theirs: PreTrainedTokenizerFast, opening: list[int]
) -> None:
    """Replies end, and transformers opens and renders conversations as the training does."""
    ids, spans = replies(TALK, tokenizer)
    assert [ids[stop - 1] for _, stop in spans] == [SHAPE["eos_token_id"]] * 2
    assert ids[: len(opening)] == opening and SHAPE["bos_token_id"] not in ids[len(opening) :]
    for messages in (TALK[:3], [{"role": "system", "content": "Be kind."}, *TALK[:1]]):
        expected = theirs.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        assert render(messages, tokenizer, prompt=True) == list(expected)


@pytest.mark.slow
def test_a_base_model_that_learns_conversations_ends_its_replies_in_every_runtime(
    chats: Path, tmp_path: Path
) -> None:
    source, base, run, out = (tmp_path / name for name in ("hf", "base", "run", "out"))
    save_model(source, byte_level(True), None)
    fast = Fast.from_file(str(source / "tokenizer.json"))
    opening = ("<|im_start|>", SHAPE["bos_token_id"])
    fast.post_processor = processors.TemplateProcessing(f"{opening[0]} $A", None, [opening])
    fast.save(str(source / "tokenizer.json"))
    assert main(["--from-hf", str(source), "--out", str(base)]) == 0
    words = [str(chats), "--init", str(base), "--out", str(run)]
    assert training_main([*words, *set_options(steps=2, batch_size=2, row_tokens=128)]) == 0
    assert main([str(run), "--out", str(out)]) == 0
    for tokenizer in (Run.load(run).tokenizer, load_bundle(out).tokenizer):
        check_learned(tokenizer, AutoTokenizer.from_pretrained(out), [opening[1]])
    write_gguf(out, tmp_path / "model.gguf")
    assert read_gguf(tmp_path / "model.gguf").metadata["tokenizer.ggml.eot_token_id"] == 2


def test_conversations_of_a_base_model_whose_texts_nothing_opens_are_opened_by_nothing(
    broken: Callable[..., Path],
) -> None:
    folder = broken("tokenizer_config.json", lambda data: data.pop("chat_template", None))
    (folder / "chat_template.jinja").unlink()
    tokenizer = read(folder)
    theirs = AutoTokenizer.from_pretrained(folder)
    theirs.chat_template = chat_template_of(tokenizer.chat)
    check_learned(tokenizer, theirs, [])
    messages = messages_of(["Hi<|im_end|>\nassistant\nYes."])
    ids = theirs.apply_chat_template(messages)["input_ids"]
    assert ids.count(SHAPE["eos_token_id"]) == 1, "what a user types ends no message"


@pytest.mark.slow
def test_the_stretched_frequencies_are_those_of_transformers() -> None:
    config = ModelConfig(position="llama3_rotary", rope_theta=5e5, rope_context=128)
    theirs = LlamaConfig(
        hidden_size=config.n_embd, num_attention_heads=config.n_head,
        rope_parameters=LLAMA3_ROPE, max_position_embeddings=512,
    )  # fmt: skip
    inverse = LlamaForCausalLM(theirs).model.rotary_emb.inv_freq
    assert torch.allclose(Llama3Rotary.frequencies(config).float(), inverse)


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    KINDS["smollm2"](folder := tmp_path_factory.mktemp("hf") / "smollm2")
    return folder


@pytest.fixture
def broken(smollm2: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the SmolLM2-like model with one JSON file changed by a function."""

    def make(name: str, change: Callable[[dict[str, Any]], Any]) -> Path:
        folder = shutil.copytree(smollm2, tmp_path / "hf")
        data = json.loads((folder / name).read_text())
        change(data)
        (folder / name).write_text(json.dumps(data))
        return folder

    return make


@pytest.fixture
def not_exported(refused: Refused, tmp_path: Path) -> Refused:
    """Exports a folder, which must be refused in a line; the line."""

    def run(folder: Path | str, *more: object) -> str:
        said = refused(main, "--from-hf", folder, "--out", tmp_path / "out", *more)
        assert not (tmp_path / "out").exists()
        return said

    return run


GEMMA = {"model_type": "gemma"}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("config.json", GEMMA, "model_type='gemma' is not supported, only 'llama' or"),
        ("config.json", {"attention_bias": True}, "attention_bias=True is not supported"),
        ("config.json", {"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ("config.json", {"head_dim": 63}, "config.json: head_dim=63 is odd"),
        (
            "config.json",
            {"num_key_value_heads": 2},
            "num_key_value_heads=2 does not divide num_attention_heads=9: choose one of [1, 3, 9]",
        ),
        (
            "generation_config.json",
            {"eos_token_id": [2, 99_999]},
            "eos_token_id=99999 is not the id of a token",
        ),
        (
            "generation_config.json",
            {"eos_token_id": "</s>"},
            "eos_token_id='</s>' is not the id of a token",
        ),
        ("config.json", {"rms_norm_eps": 2.0}, "config.json: rms_norm_eps=2.0 is out of range"),
        (
            "config.json",
            {"rope_parameters": LLAMA3_ROPE | {"low_freq_factor": 8.0}},
            "low_freq_factor=8.0 must be less than high_freq_factor=4.0",
        ),
        ("config.json", {"model_type": "qwen3"}, "do not match config.json"),
        ("config.json", {"use_sliding_window": True}, "use_sliding_window=True"),
        ("config.json", {"vocab_size": 300}, "they do not belong together"),
        ("config.json", {"vocab_size": 2_000_000_000}, "they do not belong together"),
        ("config.json", {"max_position_embeddings": 2**31 - 1}, "a context of 2147483647 tokens"),
        ("config.json", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type='yarn'"),
        (  # what transformers takes of the two
            "config.json",
            {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "yarn"}},
            "rope_type='yarn'",
        ),
        ("config.json", {"num_hidden_layers": 3}, "do not match config.json"),
        ("config.json", {"num_hidden_layers": 1}, "do not match config.json"),
        ("tokenizer.json", {"added_tokens": []}, "no special token, so nothing could end a text"),
        ("tokenizer.json", {"normalizer": {"type": "NFKC"}}, "byte-level BPE tokenizer"),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer"),
        ("tokenizer.json", {"model": {"type": "WordPiece"}}, "its model is WordPiece"),
        (
            "tokenizer.json",
            {"model": {"type": "BPE", "continuing_subword_prefix": "##", "vocab": {}}},
            "it has a continuing_subword_prefix",
        ),
        (
            "tokenizer.json",
            {"model": {"type": "BPE", "vocab": {"x" * 2001: 0}}},
            "a token has more than 2,000 bytes",
        ),
    ],
    ids=str,
)
def test_what_is_not_supported_is_named(
    broken: Callable[..., Path], not_exported: Refused, name: str, change: dict, said: str
) -> None:
    assert said in not_exported(broken(name, lambda data: data.update(change)))


@pytest.mark.slow
def test_keys_that_transformers_would_not_read_are_no_obstacle(
    broken: Callable[..., Path], tmp_path: Path
) -> None:
    odd = {"mlp_bias": None, "attention_bias": None, "_attn_implementation": "flash_attention_2"}
    folder = broken("config.json", lambda data: data.update(odd | {"return_dict": False}))
    assert main(["--from-hf", str(folder), "--out", str(tmp_path / "out")]) == 0
    [check] = [c for c in read_facts(tmp_path / "out").parity if "LlamaForCausalLM" in c.name]
    assert check.cases


def test_what_qwen3_leaves_out_is_what_transformers_takes(smollm2: Path) -> None:
    settings = json.loads((smollm2 / "config.json").read_text())
    settings.pop("head_dim")
    assert read_config(settings, smollm2, None).head_dim == 16
    config = read_config(settings | {"model_type": "qwen3"}, smollm2, None)
    assert config.head_dim == Qwen3Config().head_dim == 128


def test_merges_out_of_order_are_refused(
    broken: Callable[..., Path], not_exported: Refused
) -> None:
    folder = broken("tokenizer.json", lambda data: data["model"]["merges"].reverse())
    assert "merges are not in the order" in not_exported(folder)


def test_a_split_by_words_need_not_be_written_where_the_library_does_it_anyway(
    broken: Callable[..., Path],
) -> None:
    def change(data: dict[str, Any]) -> None:
        _, level = data["pre_tokenizer"]["pretokenizers"]
        assert level.pop("use_regex") is True
        assert pattern_of(level) == GPT2

    assert read(broken("tokenizer.json", change)).pattern == GPT2_DIGITS


def test_missing_and_damaged_files_are_named(
    smollm2: Path, not_exported: Refused, tmp_path: Path
) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        copy = tmp_path / f"without {name}"
        shutil.copytree(smollm2, copy)
        (copy / name).unlink()
        assert f"{copy / name} is missing" in not_exported(copy)
        (copy / name).write_bytes(b"\x00" * 40)
        assert "is damaged" in not_exported(copy)
    for source in (tmp_path / "no", smollm2 / "config.json", "Some/Model-135M"):
        said = not_exported(source)
        assert "is not a folder" in said and "export fetch OWNER/NAME" in said
    for context in (1, 0, -5, 9999):
        said = not_exported(smollm2, "--context", context)
        assert f"--context {context} is out of range" in said


def test_a_file_of_another_form_is_told_in_a_line(
    broken: Callable[..., Path], smollm2: Path, not_exported: Refused
) -> None:
    folder = broken("tokenizer.json", lambda data: data["model"]["merges"].insert(0, "a b c"))
    assert "the merge ['a', 'b', 'c'] is not of two tokens" in not_exported(folder)
    shutil.copy(smollm2 / "tokenizer.json", folder)
    weights = load_file(folder / "model.safetensors")
    head = {"lm_head.weight": weights.pop("model.embed_tokens.weight")}
    save_file(weights | head, folder / "model.safetensors")
    assert "such as model.embed_tokens.weight" in not_exported(folder)
    (folder / "generation_config.json").write_text("[]")
    assert "generation_config.json is damaged: it is not a JSON object" in not_exported(folder)
    (folder / "chat_template.jinja").write_text(CHATML, encoding="utf-16")  # as PowerShell has it
    (folder / "generation_config.json").unlink()
    assert "chat_template.jinja is not in UTF-8: save it" in not_exported(folder)


def test_a_link_out_of_the_folder_is_refused(
    broken: Callable[..., Path], not_exported: Refused, tmp_path: Path
) -> None:
    """What it leads to would be copied into the model folder, and pushed with it."""
    folder = broken("config.json", lambda data: None)
    (tmp_path / "secret").write_text("{}")
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    (folder / "special_tokens_map.json").symlink_to(tmp_path / "secret")
    assert "special_tokens_map.json is a link that leads out of" in not_exported(folder)


def test_a_template_that_is_more_than_turns_is_refused() -> None:
    for template in (
        "{{ messages | length }}",
        "{% for m in messages %}",
        "{{ raise_exception('no') }}",
        "{% include 'secret' %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 1 / 0 }}",
        "{{ messages.nothing.nothing }}",
        "{{ ''.__class__.__mro__ }}",
        "{% for m in messages %}<{{ m.role }}>{{ m.content.rstrip() }}</s>{% endfor %}",
        "{% for m in messages %}<{{ m.role }}>{{ m.content.lstrip() }}</s>{% endfor %}",
    ):
        with pytest.raises(UserError, match="chat_template") as refused:
            read_format(template, {}, "")
        assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_template_that_takes_too_long_or_too_much_is_ended(monkeypatch) -> None:
    monkeypatch.setattr(export.pretrained.chat_template, "SECONDS", 3)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(UserError, match="chat_template did not end within 3 s"):
        read_format(loop, {}, "")
    if sys.platform == "linux":
        with pytest.raises(UserError, match="chat_template needs too much memory"):
            read_format("{{ 'x' * 3000000000 }}", {}, "")


def test_a_template_whose_process_fails_is_not_blamed_for_memory(
    tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "jinja2.py").write_text("raise OSError('no such thing here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UserError, match=r"could not be run .OSError: no such thing here"):
        read_format(TURNS, {}, "")


TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}<assistant>"


def test_a_template_sees_what_hugging_face_shows_it() -> None:
    """Which also has a tag for what a trainer learns."""
    plain = read_format(TURNS, {}, "")
    for before in ("{% if tools is not none %}You can call {{ tools }}{% endif %}",
                   "{% if documents %}{{ documents }}{% endif %}"):  # fmt: skip
        assert read_format(before + TURNS, {}, "") == plain
    content = "{{ m.content }}"
    learned = TURNS.replace(content, f"{{% generation %}}{content}{{% endgeneration %}}")
    assert read_format(learned, {}, "") == plain


def test_a_template_that_drops_what_was_thought_aloud_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = read_format(TURNS, {}, "")
    assert capsys.readouterr().out == ""
    content = "{{ m.content }}"
    dropping = TURNS.replace(content, "{{ m.content.split('</think>')[-1] }}")
    assert read_format(dropping, {}, "") == plain
    assert "changes replies that have </think>" in capsys.readouterr().out


def test_the_day_of_the_export_does_not_stay_in_the_format() -> None:
    day = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}2024{% endif %}"
    assert read_format(day + TURNS, {}, "").opening.startswith("2024<")


def test_an_empty_template_is_none(broken: Callable[..., Path]) -> None:
    folder = broken("tokenizer_config.json", lambda data: data.update(chat_template=""))
    (folder / "chat_template.jinja").unlink()
    assert chat_template(folder)[0] is None
    (folder / "tokenizer_config.json").write_text('{"chat_template": 5}')
    with pytest.raises(UserError, match="chat_template=5 is not a string"):
        chat_template(folder)


def test_older_folders_name_their_special_tokens_in_a_file_of_their_own(
    broken: Callable[..., Path],
) -> None:
    folder = broken("tokenizer_config.json", lambda data: data.pop("bos_token"))
    names = {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<repo_name>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(names))
    found = chat_template(folder)[1]
    assert (found["bos_token"], found["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert found["pad_token"] == "" and "sep_token" not in found


def test_a_template_knows_every_special_token_that_is_named(broken: Callable[..., Path]) -> None:
    tokens = {"sep_token": "<repo_name>", "add_bos_token": True, "pad_token": None}
    found = chat_template(broken("tokenizer_config.json", lambda data: data.update(tokens)))[1]
    assert (found["sep_token"], found["pad_token"]) == ("<repo_name>", "")
    assert "add_bos_token" not in found


def test_of_several_templates_the_one_named_default_is_taken(broken: Callable[..., Path]) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": TURNS}]
    folder = broken("tokenizer_config.json", lambda data: data.update(chat_template=named))
    (folder / "chat_template.jinja").unlink()  # which goes before
    assert chat_template(folder)[0] == TURNS
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named[:1]}))
    with pytest.raises(UserError, match="several chat templates and no default"):
        chat_template(folder)


def test_a_length_that_a_tokenizer_file_asks_for_is_no_part_of_a_text(
    broken: Callable[..., Path],
) -> None:
    padding = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
               "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"}  # fmt: skip
    truncation = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    lengths = {"padding": padding, "truncation": truncation}
    folder = broken("tokenizer.json", lambda data: data.update(lengths))
    tokenizer = read(folder)
    assert len(tokenizer.encode("Good day to you, dear reader!")) > 5


def changed(folder: Path, name: str, **keys: Any) -> None:
    path = folder / name
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | keys))


def read(folder: Path) -> Tokenizer:
    return read_tokenizer(folder, json.loads((folder / "config.json").read_text())["vocab_size"])


def token(data: dict[str, Any], name: str) -> dict[str, Any]:
    return next(token for token in data["added_tokens"] if token["content"] == name)


@pytest.mark.parametrize("where", ["generation_config.json", "config.json", "eos_token"])
def test_a_token_that_ends_replies_is_special_though_its_file_does_not_say_so(
    broken: Callable[..., Path], tmp_path: Path, where: str
) -> None:
    """As after tokenizer.add_tokens("<|im_end|>"), and in GGUF files as USER_DEFINED."""
    folder = broken("tokenizer.json", lambda data: token(data, "<|im_end|>").update(special=False))
    for name in ("generation_config.json", "config.json"):
        changed(folder, name, eos_token_id=[0, 2] if where == name else 0)
    if where != "generation_config.json":
        (folder / "generation_config.json").unlink()
    changed(folder, "tokenizer_config.json", eos_token="<|im_end|>" if where == "eos_token" else "")
    tokenizer = read(folder)
    assert tokenizer.special["<|im_end|>"] == 2 and tokenizer.added == {}
    assert 2 not in tokenizer.encode("Bye<|im_end|>")
    settings = json.loads((folder / "config.json").read_text())
    (tmp_path / "out").mkdir()
    write_config(settings, read_config(settings, folder, None), tokenizer, folder, tmp_path / "out")
    written = Fast.from_file(str(tmp_path / "out" / "tokenizer.json"))
    written.encode_special_tokens = True
    assert written.encode("Bye<|im_end|>").ids == tokenizer.encode("Bye<|im_end|>")


def test_an_added_token_without_a_text_is_never_found_in_one(broken: Callable[..., Path]) -> None:
    def add(data: dict[str, Any]) -> None:
        data["added_tokens"].append(data["added_tokens"][-1] | {"content": "", "id": 700})

    folder = broken("tokenizer.json", add)
    tokenizer = read_tokenizer(folder, 701)
    expected = AutoTokenizer.from_pretrained(folder).apply_chat_template(TALK[:1])["input_ids"]
    assert render(TALK[:1], tokenizer) == expected


def test_an_ordinary_token_that_ends_replies_is_refused(broken: Callable[..., Path]) -> None:
    folder = broken("generation_config.json", lambda data: data.update(eos_token_id=[2, 300]))
    with pytest.raises(UserError, match=r"ends replies .*but added_tokens .* do not list it"):
        read(folder)


@pytest.mark.parametrize(
    ("named", "ids", "end"),
    [("", [2, 0], "<|im_end|>"), (None, 0, "<|endoftext|>"), ("<|im_end|>", None, "<|im_end|>")],
)
def test_a_base_model_learns_to_end_messages_with_what_ends_its_texts(
    broken: Callable[..., Path], named: str | None, ids: object, end: str
) -> None:
    folder = broken("tokenizer_config.json", lambda data: data.update(eos_token=named))
    (folder / "chat_template.jinja").unlink()
    (folder / "generation_config.json").unlink()
    changed(folder, "config.json", eos_token_id=ids)
    assert read(folder).chat.user == ("user\n", f"{end}\n")
    changed(folder, "config.json", eos_token_id=None)
    changed(folder, "tokenizer_config.json", eos_token="<unknown>")
    with pytest.raises(UserError, match="names no special token that ends a text: write eos_token"):
        read(folder)


def test_a_token_of_the_chat_format_that_swallows_white_space_is_refused(
    broken: Callable[..., Path],
) -> None:
    """transformers would strip what stands beside it; elsewhere such a token does no harm."""
    folder = broken("tokenizer.json", lambda data: token(data, "<repo_name>").update(lstrip=True))
    assert "<repo_name>" in read(folder).special
    data = json.loads((folder / "tokenizer.json").read_text())
    token(data, "<|im_end|>")["rstrip"] = True
    (folder / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"added token '<.im_end.>' has rstrip"):
        read(folder)


@pytest.mark.parametrize(
    ("processor", "opening"),
    [("<|im_start|> $A", "<|im_start|>"), ("<|im_start|> $A <|im_end|>", None), ("a $A", None)],
)
def test_only_special_tokens_before_a_text_open_it(
    broken: Callable[..., Path], processor: str, opening: str | None
) -> None:
    ids = [("<|im_start|>", 1), ("<|im_end|>", 2), ("a", 70)]
    made = Fast(models.BPE())
    made.post_processor = processors.TemplateProcessing(processor, None, ids)
    post = json.loads(made.to_str())["post_processor"]
    folder = broken("tokenizer.json", lambda data: data.update(post_processor=post))
    if opening is not None:
        assert read(folder).chat.text == opening
        return
    with pytest.raises(UserError, match="its post_processor makes"):
        read(folder)


def test_an_unknown_token_is_refused_where_a_byte_may_be_unknown(
    broken: Callable[..., Path],
) -> None:
    folder = broken("tokenizer.json", lambda data: data["model"].update(unk_token="<repo_name>"))
    assert read(folder)
    data = json.loads((folder / "tokenizer.json").read_text())
    spare = data["model"]["vocab"].pop("\u00ff")
    data["added_tokens"].append(token(data, "<repo_name>") | {"id": spare, "content": "<spare>"})
    (folder / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match="it has an unknown token, and lacks single bytes"):
        read(folder)


@pytest.mark.parametrize("is_chat", [True, False])
def test_texts_are_measured_as_they_are_read_with_what_opens_them(
    broken: Callable[..., Path], tmp_path: Path, is_chat: bool
) -> None:
    made = Fast(models.BPE())
    made.post_processor = processors.TemplateProcessing(
        "<|im_start|> $A", None, [("<|im_start|>", 1)]
    )
    post = json.loads(made.to_str())["post_processor"]
    tokenizer = read(broken("tokenizer.json", lambda data: data.update(post_processor=post)))
    (tmp_path / "a.txt").write_text("Once upon a time.")
    (ids, targets), *_ = measured_rows(tokenizer, is_chat, tmp_path / "a.txt", 64)
    assert [*ids, targets[-1]] == [1, *tokenizer.encode("Once upon a time.")]
    (ids, _), *_ = measured_rows(tokenizer, is_chat, None, 64)  # conversations
    expected = render(next(dialogues(0)), tokenizer) if is_chat else [1]
    assert ids[:3].tolist()[: len(expected)] == expected[:3]


def test_files_for_other_runtimes_name_no_id_that_is_null_and_the_context_that_was_chosen(
    broken: Callable[..., Path], tmp_path: Path
) -> None:
    folder = broken("config.json", lambda data: data.update(bos_token_id=None, mlp_bias=None))
    changed(folder, "generation_config.json", bos_token_id=None)
    changed(folder, "tokenizer_config.json", model_max_length=131072)
    changed(folder, "special_tokens_map.json")
    (folder / "special_tokens_map.json").chmod(0o444)  # as on a share that may only be read
    settings = json.loads((folder / "config.json").read_text())
    (tmp_path / "out").mkdir()
    config = read_config(settings, folder, 256)
    write_config(settings, config, read(folder), folder, tmp_path / "out")
    written = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()}
    model = written["genai_config"]["model"]
    assert (model["bos_token_id"], model["eos_token_id"]) == (2, 2)
    assert written["tokenizer_config"]["model_max_length"] == 256
    assert (tmp_path / "out" / "special_tokens_map.json").stat().st_mode & stat.S_IWUSR
    for none in (None, []):
        for name in ("config.json", "generation_config.json"):
            changed(folder, name, eos_token_id=none)
        write_config(settings, config, read(folder), folder, tmp_path / "out")
        model = json.loads((tmp_path / "out" / "genai_config.json").read_text())["model"]
        assert not {"bos_token_id", "eos_token_id"} & set(model)


def test_a_tied_head_that_is_another_than_the_embedding_is_refused(
    broken: Callable[..., Path], not_exported: Refused
) -> None:
    """transformers takes the stored one, and the file says that there is none."""
    folder = broken("config.json", lambda data: data.update(tie_word_embeddings=True))
    weights = load_file(folder / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    save_file(weights | {"lm_head.weight": embedding + 1}, folder / "model.safetensors")
    said = "tie_word_embeddings is true, but lm_head.weight is not the embedding"
    assert said in not_exported(folder)


def test_tensors_of_wrong_shapes_are_refused_though_their_sum_is_right(
    broken: Callable[..., Path], not_exported: Refused
) -> None:
    folder, layer = broken("config.json", lambda data: None), "model.layers.1.self_attn"
    weights = load_file(folder / "model.safetensors")
    for shapes in ({"k": (47, 144), "v": (49, 144)}, {"k": (48, 143)}, {"v": ()}):
        wrong = {f"{layer}.{name}_proj.weight": torch.zeros(s) for name, s in shapes.items()}
        save_file(weights | wrong, folder / "model.safetensors")
        said = f"{min(wrong)} has the shape {next(iter(shapes.values()))}, where (48, 144) is"
        assert said in not_exported(folder)


def test_an_index_beside_the_whole_file_is_not_read(smollm2: Path, tmp_path: Path) -> None:
    """transformers leaves that of an older, larger version where it saves a model."""
    folder = shutil.copytree(smollm2, tmp_path / "hf")
    old = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (folder / INDEX).write_text(json.dumps(old))
    theirs, ours = LlamaForCausalLM.from_pretrained(folder).state_dict(), Weights(folder)
    assert ours and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_our_own_template_is_read_as_our_own_format(model_folder: Path) -> None:
    settings = json.loads((model_folder / "tokenizer_config.json").read_text())
    found = read_format(settings["chat_template"], {}, "<|endoftext|>")
    assert found == ChatFormat(system=("", "<|end|>"), opening="<|endoftext|><|system|>")


def test_its_tokenizer_is_not_for_a_new_model(
    imported: tuple[Path, Path], refused: Refused, tmp_path: Path
) -> None:
    arguments = ("--preset", "tiny", "--out", tmp_path / "run", "--tokenizer", imported[1])
    assert "train that further, with --init" in refused(training_main, *arguments)


def test_a_long_run_of_spaces_does_no_harm(imported: tuple[Path, Path]) -> None:
    tokenizer = load_bundle(imported[1]).tokenizer
    assert tokenizer.decode(tokenizer.encode(" " * 1_000_000)) == " " * 1_000_000
    with pytest.raises(UserError, match="white space in a row"):
        tokenizer.encode(" " * 1_000_000 + "1")


def test_a_foreign_tokenizer_survives_saving(imported: tuple[Path, Path], tmp_path: Path) -> None:
    tokenizer = load_bundle(imported[1]).tokenizer
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.special, again.chat, again.sha256) == (
        tokenizer.special, tokenizer.chat, tokenizer.sha256,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"do_sample": True, "top_p": 0.8, "repetition_penalty": 1.1, "top_k": 20, "eos": 5}, 3),
        ({"do_sample": True, "temperature": 11, "top_k": True, "top_p": "0.8", "seed": 3}, 0),
        ({"do_sample": False, "temperature": 0.6}, 0),
        ({}, 0),
    ],
)
def test_what_its_makers_recommend_to_sample_with_is_kept(
    given: dict[str, Any], kept: int, tmp_path: Path
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(given))
    found = recommended_sampling(tmp_path)
    assert len(found) == kept and found.items() <= given.items()
