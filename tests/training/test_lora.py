"""LoRA: adapters beside frozen matrices, merged, and under PEFT's names; and memory of a step."""

import weakref
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gptcore.config import PRESETS, ModelConfig
from gptcore.nn import build_model
from gptcore.nn.checkpoint import load_weights
from gptcore.nn.gpt import GPT, whole_sequence
from gptcore.nn.seq2seq import Seq2Seq
from training.lora import SCALE, add_adapters, merged, peft_config, to_peft
from training.machine.fast_attention import use_fast_attention
from training.machine.memory import free_memory, kept_bytes, recompute_blocks, room
from training.machine.processes import World
from training.optim.optimizers import optimizer_tensors
from training.run.config import ADAPTERS, TrainConfig
from training.state import State, build_state, held_bytes
from training.step import step

CONFIG = replace(PRESETS["tiny"], block_size=64)
IDS = torch.arange(3, 43)[None]
TRANSLATOR = replace(PRESETS["translator"], vocab_size=8, source_vocab_size=8, n_kv_head=2)
RANK = 4


def logits(model: GPT) -> Tensor:
    with torch.no_grad():
        return model(**whole_sequence(IDS))[0]


def weights(model: GPT) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def adapters_of(model: GPT) -> dict[str, Tensor]:
    """The adapters' matrices by name."""
    return {name: p.detach() for name, p in model.named_parameters() if ".lora_" in name}


def adapted(config: ModelConfig = CONFIG) -> tuple[GPT, dict[str, Tensor]]:
    """A model with adapters that have learned something, and the weights it had before."""
    torch.manual_seed(1)
    model = build_model(config)
    before = weights(model)
    add_adapters(model, RANK)
    for name, parameter in model.named_parameters():
        if name.endswith("lora_b"):
            torch.nn.init.normal_(parameter, std=0.05)
    return model, before


def lora_state(**settings: object) -> tuple[State, TrainConfig, dict[str, Tensor]]:
    torch.manual_seed(2)
    initial = weights(build_model(CONFIG))
    sizes = {"lora": RANK, "batch_size": 2, "micro_batch_size": 1}
    config = replace(ADAPTERS, **{"dtype": "float32"} | sizes | settings)
    return build_state(CONFIG, config, World(), initial=initial)[1], config, initial


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    return torch.randint(512, (2, 64)), torch.randint(512, (2, 64))


def task_logits(model: GPT, x: Tensor) -> Tensor:
    return model(**whole_sequence(x))[0]


def test_a_fresh_adapter_changes_nothing() -> None:
    model = build_model(CONFIG)
    before = logits(model)
    add_adapters(model, RANK)
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("tied", [True, False])
def test_merged_weights_compute_what_the_adapters_compute(tied: bool) -> None:
    config = replace(CONFIG, tied_embeddings=tied, n_kv_head=1)
    model, before = adapted(config)
    plain = build_model(config)
    load_weights(plain, merged(before, adapters_of(model)), "merged")
    assert (logits(plain) - logits(model)).abs().max() < 1e-4
    load_weights(plain, before, "before")
    assert (logits(plain) - logits(model)).abs().max() > 0.01


def test_each_module_of_peft_gets_its_rows_of_the_packed_product() -> None:
    model, _ = adapted()
    ours, theirs = adapters_of(model), to_peft(adapters_of(model), CONFIG)
    packed = ours["blocks.1.attention.qkv.lora_b"] @ ours["blocks.1.attention.qkv.lora_a"]
    modules = [f"base_model.model.model.layers.1.self_attn.{m}_proj" for m in "qkv"]
    products = [theirs[f"{m}.lora_B.weight"] @ theirs[f"{m}.lora_A.weight"] for m in modules]
    assert torch.allclose(torch.cat(products), packed, atol=1e-6)
    assert len(theirs) == 2 * 7 * CONFIG.n_layer
    named = peft_config(RANK, "models/base")["target_modules"]
    assert {name.split(".")[-3] for name in theirs} == set(named)
    assert peft_config(RANK, "models/base")["lora_alpha"] == SCALE * RANK


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_only_the_adapters_are_trained(dtype: str) -> None:
    state, config, initial = lora_state(dtype=dtype)
    fresh = {name: t.clone() for name, t in adapters_of(state.model).items()}
    losses = [step(state, batch(), task_logits, config)["loss"] for _ in range(3)]
    assert losses[-1] < losses[0]
    after = weights(state.model)
    for name, tensor in initial.items():
        assert torch.equal(after[name], tensor.to(after[name].dtype)), name
    changed = {name for name, t in fresh.items() if not torch.equal(after[name], t)}
    assert changed == set(fresh)
    frozen = state.model.blocks[0].attention.qkv.weight
    assert frozen.dtype == getattr(torch, dtype) and not frozen.requires_grad
    assert {after[name].dtype for name in fresh} == {torch.float32}


def test_blocks_that_are_computed_twice_give_the_same_step() -> None:
    results = []
    for way in ("off", "on"):
        state, config, _ = lora_state(gradient_checkpointing=way)
        step(state, batch(), task_logits, config)
        results.append(adapters_of(state.model))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.parametrize("config", [CONFIG, TRANSLATOR], ids=["decoder", "translator"])
def test_blocks_that_are_computed_twice_keep_far_less(config: ModelConfig) -> None:
    model = build_model(config)
    plain = kept(model, torch.float32)
    recompute_blocks(model)
    assert kept(model, torch.float32) < plain / 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_estimate_of_what_a_step_keeps_is_near_what_autograd_keeps(dtype: torch.dtype) -> None:
    config = ModelConfig(
        vocab_size=8, block_size=256, n_layer=2, n_head=6, n_kv_head=2, n_embd=192, n_inner=512
    )
    model = build_model(config)
    add_adapters(model, RANK, dtype)
    use_fast_attention(model, torch.device("cpu"))
    estimate = kept_bytes(config, 1, 256, dtype.itemsize, is_fused=False)
    assert 0.7 < kept(model, dtype) / estimate < 1.4
    assert free_memory(torch.device("cpu")) > estimate


def test_the_estimate_of_what_a_step_keeps_counts_the_encoder_of_a_translator() -> None:
    estimate = kept_bytes(TRANSLATOR, 1, TRANSLATOR.block_size, 4, is_fused=False)
    assert 0.7 < kept(build_model(TRANSLATOR), torch.float32) / estimate < 1.4


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_the_estimate_of_what_a_training_holds_is_near_what_it_holds(optimizer: str) -> None:
    training = TrainConfig(batch_size=2, micro_batch_size=2, optimizer=optimizer, dtype="float32")
    _, state = build_state(CONFIG, training, World())
    step(state, batch(), task_logits, training)
    tensors = [t for p in state.model.parameters() for t in (p, p.grad)]
    moments = optimizer_tensors(state.optimizers, is_kept=True).values()
    held = sum(tensor.nbytes for tensor in (*tensors, *moments))
    assert 0.8 < held_bytes(CONFIG, training) / held <= 1.01


def test_what_a_training_holds_leaves_less_room_for_a_step(monkeypatch) -> None:
    held = held_bytes(CONFIG, TrainConfig())
    assert held_bytes(CONFIG, TrainConfig(parallel="fsdp"), 4) == held // 4
    monkeypatch.setattr("training.machine.memory.free_memory", lambda device: held + 1000.0)
    assert room(torch.device("cpu"), held) == 500


def test_a_model_that_nobody_uses_any_more_leaves_the_memory_at_once() -> None:
    model = build_model(CONFIG)
    use_fast_attention(model, torch.device("cpu"))
    left = weakref.ref(model.blocks[0].attention)
    del model
    assert left() is None


def kept(model: GPT | Seq2Seq, dtype: torch.dtype) -> int:
    """The bytes that autograd keeps of a row of block_size tokens, without the weights."""
    own = [*model.parameters(), *model.buffers()]
    weights = {tensor.untyped_storage().data_ptr() for tensor in own}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage
        return tensor

    ids = torch.zeros(1, model.config.block_size, dtype=torch.long)
    is_low = dtype == torch.bfloat16
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=is_low),
    ):
        model.train()
        if isinstance(model, GPT):
            logits = model(**whole_sequence(ids))[0]
        else:
            logits = model(ids, torch.ones_like(ids), ids, torch.ones_like(ids))
    assert logits.requires_grad  # the graph lives until here
    return sum(storage.nbytes() for storage in storages.values())
