"""A training run to a model folder, which gets its name only after it has been verified.

>>> export_run(Run.load("runs/mine"), Path("models/mine"), "mine", "mit")    # doctest: +SKIP
"""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from export.card import write_card
from export.hugging_face import (
    genai_config,
    generation_config,
    llama_config,
    special_tokens_map,
    tokenizer_config,
    write_tokenizer_json,
)
from export.to_onnx import write_onnx
from export.verify import as_facts, print_report, verify
from gptcore.bundle import FACTS, ONNX, Bundle, read_facts, write_facts
from gptcore.checks import UserError
from gptcore.files import new_folder
from gptcore.nn import build_model, count_parameters
from gptcore.nn.checkpoint import load_checkpoint, load_weights, newest_checkpoint
from gptcore.nn.gpt import GPT
from gptcore.nn.llama import to_llama
from gptcore.tokenizer import Tokenizer
from training.run import Run


def export_run(run: Run, out: Path, name: str, license_name: str) -> None:
    """Write and verify a model folder from a run's newest checkpoint.

    UserError if the verification fails; then nothing is left under the name `out`.
    """
    check_replaceable(out)
    checkpoint, problems = newest_checkpoint(run.checkpoints)
    for problem in problems:
        print(f"passed over: {problem}")
    weights, _, facts = load_checkpoint(checkpoint)
    model = build_model(run.model)
    load_weights(model, weights, checkpoint)
    print(f"exporting {checkpoint} to {out}")
    data = {key: value for key, value in run.data.items() if key != "shards"}  # a local path
    with new_folder(out) as folder:
        write_model(model, run.tokenizer, bool(run.data["chat"]), folder)
        facts = {
            "name": name,
            "chat": bool(run.data["chat"]),
            "parameters": count_parameters(model),
            "config": run.model.to_dict(),
            "training": {"step": facts["step"], "data": data, "settings": run.train.to_dict()},
            "measured": measured(run, facts["step"]),
        }
        checks = verify(Bundle(folder, run.model, run.tokenizer, facts))
        print_report(checks)
        if not all(check.passed for check in checks):
            raise UserError(f"the exported graph is not the model: {out} was not written")
        facts["parity"] = as_facts(checks)
        write_card(folder / "README.md", facts, license_name)
        write_facts(folder, facts)
    print(f"verified; next: python app.py --model {out}")


def check_replaceable(out: Path) -> None:
    """Refuse to delete what an export did not write."""
    if not out.exists():
        return
    if not (out / FACTS).is_file():
        raise UserError(f"{out} exists and is no model folder: choose another --out")
    ours = {FACTS, *read_facts(out)["sha256"]}
    found = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    if found - ours:
        raise UserError(f"{out} holds files of yours ({min(found - ours)}): choose another --out")


def write_model(model: GPT, tokenizer: Tokenizer, is_chat: bool, folder: Path) -> None:
    """Graph, weights, tokenizer and the configuration files of other runtimes."""
    config = model.config
    (folder / ONNX).parent.mkdir()
    write_onnx(model, folder / ONNX)
    state = {name: t.contiguous() for name, t in to_llama(model.state_dict(), config).items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(folder)
    write_tokenizer_json(tokenizer, folder / "tokenizer.json")
    for name, content in (
        ("config.json", llama_config(config, tokenizer.special)),
        ("generation_config.json", generation_config(tokenizer.special)),
        ("genai_config.json", genai_config(config, tokenizer.special)),
        ("tokenizer_config.json", tokenizer_config(config, is_chat)),
        ("special_tokens_map.json", special_tokens_map()),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def measured(run: Run, step: int) -> dict[str, Any]:
    """The last evaluation up to this step: loss and bits per byte of the held-out text."""
    evaluations = [m for m in run.metrics() if "bits_per_byte" in m and m["step"] <= step]
    if not evaluations:
        return {}
    return {key: evaluations[-1][key] for key in ("step", "val_loss", "bits_per_byte")}
