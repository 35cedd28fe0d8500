"""The state of a training run (model, optimizers, counters), and its checkpoints.

>>> settings, state = build_state(run.model, run.train, World())           # doctest: +SKIP
>>> save_state(run, state)                                               # doctest: +SKIP
"""

from dataclasses import dataclass, replace

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from gptcore.checks import UserError
from gptcore.config import ModelConfig, Seq2SeqConfig
from gptcore.nn import build_model, count_parameters
from gptcore.nn.checkpoint import MODEL, Checkpoint, Tensors, load_weights, save_checkpoint
from gptcore.system.files import new_folder, write_json
from gptcore.system.wording import word
from training.lora import add_adapters, peft_config, to_peft
from training.machine.devices import pick_device, pick_dtype, speed_up
from training.machine.flops import flops_per_token
from training.machine.malloc import keep_freed_memory
from training.machine.memory import kept_bytes, recompute_blocks, room
from training.machine.parallel import parallelise, whole
from training.machine.processes import World
from training.optim.optimizers import (
    Optimizers,
    build_optimizers,
    load_optimizer_tensors,
    optimizer_tensors,
    trained,
)
from training.run.base import base_file
from training.run.config import TrainConfig
from training.run.directory import Run

COUNTS = ("step", "seconds")


@dataclass
class State:
    """Everything that a training step changes, and where it is computed.

    It holds no random state: each step seeds its generator with (seed, step, rank).
    """

    model: nn.Module
    network: nn.Module  # the module called in training: the model or its DDP or FSDP wrapper
    optimizers: Optimizers
    device: torch.device
    dtype: torch.dtype  # precision of the matrix products
    world: World
    is_compiled: bool = False  # whether the blocks are compiled, and so the loss is, too
    step: int = 0  # number of steps done
    bad_steps: int = 0  # number of consecutive last steps without a finite loss and gradient
    seconds: float = 0.0  # training time, without pauses


def held_bytes(config: ModelConfig, training: TrainConfig, n_processes: int = 1) -> int:
    """Return about how many bytes the weights, gradients and moments of a process take, in fp32."""
    with torch.device("meta"):
        n = count_parameters(build_model(config))
    each = 4 if training.lora else 16 if training.optimizer == "adamw" else 12
    return each * n // (n_processes if training.parallel == "fsdp" else 1)


def build_state(
    shape: ModelConfig,
    config: TrainConfig,
    world: World,
    checkpoint: Checkpoint | None = None,
    initial: Tensors | None = None,
) -> tuple[TrainConfig, State]:
    """Return the settings with each "auto" resolved, which a resume keeps, and the state, built
    from `checkpoint`, from `initial` weights, or from random weights.

    All processes must call it. A run of adapters needs `initial` with a checkpoint, too. Raises
    UserError if the weights do not fit the model.
    """
    keep_freed_memory()
    device, row_tokens = pick_device(), config.row_length(shape.block_size)
    dtype = pick_dtype(config.dtype, device, world)
    is_twice = computes_twice(shape, config, device, dtype, world)
    torch.manual_seed(config.seed)
    model = build_model(shape).train()
    if initial:
        load_weights(model, initial, "--init")
    if config.lora:
        add_adapters(model, config.lora, dtype)
    if checkpoint:
        load_weights(model, checkpoint.model, checkpoint.path)
    n_tokens = config.steps * config.batch_size * row_tokens
    flops = n_tokens * flops_per_token(shape, row_tokens, config.lora)
    is_compiled = speed_up(model, config.compile, device, flops)
    if is_twice:
        recompute_blocks(model)
    network = parallelise(model, config.parallel, world, device)
    optimizers = build_optimizers(model, config, dtype)
    state = State(model, network, optimizers, device, dtype, world, is_compiled)
    if checkpoint:
        load_optimizer_tensors(optimizers, checkpoint.state)
        for name in COUNTS:
            setattr(state, name, checkpoint.facts[name])
    settled = replace(
        config,
        dtype="bfloat16" if dtype == torch.bfloat16 else "float32",
        gradient_checkpointing="on" if is_twice else "off",
        compile="on" if is_compiled else "off",
    )
    return settled, state


def fresh_state(
    shape: ModelConfig,
    config: TrainConfig,
    world: World = World(),
    initial: Tensors | None = None,
) -> State:
    """Return a new state without compilation, which pays off in long runs only; see build_state."""
    return build_state(shape, replace(config, compile="off"), world, initial=initial)[1]


def computes_twice(
    shape: ModelConfig, config: TrainConfig, device: torch.device, dtype: torch.dtype, world: World
) -> bool:
    """Return whether to checkpoint gradients; "auto" does where a micro-batch would keep more than
    half of the memory that the weights leave free.

    The first process decides for all, as memory differs between them.
    """
    if config.gradient_checkpointing != "auto":
        return config.gradient_checkpointing == "on"
    n_rows = min(config.batch_size, config.micro_batch_size)
    row_tokens = config.row_length(shape.block_size)
    is_fused = device.type == "cuda" and not isinstance(shape, Seq2SeqConfig)
    needed = kept_bytes(shape, n_rows, row_tokens, dtype.itemsize, is_fused)
    held = held_bytes(shape, config, world.size)
    return world.any(world.is_first and needed > room(device, held))


def save_state(run: Run, state: State) -> None:
    """Write a checkpoint; it does not depend on the number of processes.

    The first process gathers all parts, so it needs memory for the whole model and its moments.
    """
    is_first = state.world.is_first
    weights = trained_weights(state.model, is_first)
    moments = optimizer_tensors(state.optimizers, is_first)
    facts = {name: getattr(state, name) for name in COUNTS}
    if is_first:
        path = run.checkpoints / f"step-{state.step}"
        save_checkpoint(path, weights, moments, facts)
        run.sound[path] = True  # no need to read it back
        run.drop_old_checkpoints()


def write_adapter(run: Run) -> None:
    """Write adapter/ with the best checkpoint's adapters, as PEFT reads them."""
    weights = base_file(run)
    base = weights.parent.parent if weights.suffix == ".onnx" else weights.parent
    adapters = to_peft(run.first_sound(run.by_goodness()).model, run.model)
    config = peft_config(run.train.lora, str(base))
    with new_folder(run.path / "adapter") as folder:
        save_file(adapters, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        (folder / "adapter_model.safetensors").chmod(0o644)
        write_json(folder / "adapter_config.json", config)
    if weights.suffix == ".onnx" or not (base / "config.json").is_file():
        print(
            f"{run.path / 'adapter'} names {base}, which PEFT cannot load: it has no "
            f"model.safetensors in Hugging Face's form; to use the result there, merge the two: "
            f"python -m export {word(run.path)} --out {word(f'models/{run.path.name}')}"
        )


def save_evidence(
    run: Run, state: State, batch: tuple[Tensor, ...], facts: dict[str, float]
) -> None:
    """Write evidence/step-N: a bad step's weights, batch, and the norm of each gradient.

    The batch is the first process's part.
    """
    weights = trained_weights(state.model)
    gradients = {
        name: {"norm": float(g.norm()), "not_finite": int((~g.isfinite()).sum())}
        for name, p in state.model.named_parameters()
        if p.grad is not None and (g := whole(p.grad)) is not None
    }
    if state.world.is_first:
        with new_folder(run.path / "evidence" / f"step-{state.step}") as folder:
            save_file(weights, folder / MODEL)
            tensors = {f"tensor_{i}": t.contiguous() for i, t in enumerate(batch)}
            save_file(tensors, folder / "batch.safetensors")
            write_json(folder / "facts.json", facts | {"gradients": gradients})


def trained_weights(model: nn.Module, is_kept: bool = True) -> Tensors:
    """Return the parameters that are trained on the CPU, tied ones once.

    All processes must call it; those that do not keep the result get nothing.
    """
    gathered = ((name, whole(p.detach())) for name, p in trained(model))
    return {name: tensor.cpu().contiguous() for name, tensor in gathered if is_kept}


def open_checkpoint(run: Run) -> Checkpoint:
    """Return the newest sound checkpoint of a run to resume.

    Raises UserError if there is none, or if the run is complete.
    """
    check_unfinished(run)
    checkpoint = run.newest_checkpoint()
    print(f"resuming from {checkpoint.path}")
    return checkpoint


def check_unfinished(run: Run) -> None:
    """Raise UserError if there is nothing to resume, as the run is complete."""
    if run.is_complete and run.newest_checkpoint().facts["step"] >= run.train.steps:
        said = f"{run.path} is complete already: nothing to resume"
        if not isinstance(run.model, Seq2SeqConfig):
            said += f" (a new run goes on from its weights with --init {word(run.path)} --out DIR)"
        raise UserError(said)
