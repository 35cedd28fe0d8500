"""Writes an embedding kit: a model folder with a sampling graph, a contract and test vectors.

>>> write_kit(Path("models/nano"), Path("kit"))                      # doctest: +SKIP
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from export.folder.card import read_hub, write_card
from export.folder.copy import copy_files
from export.folder.replace import replacing
from export.formats.sampling import write_sampling
from export.kit.contract import contract, page
from export.kit.vectors import make_vectors
from export.verify.report import print_report, require_passed
from export.verify.sampling import compare_sampling
from gptcore.bundle import (
    INDEX,
    INSPECT,
    ONNX,
    SERVING,
    UNTRAINED,
    VARIANTS,
    Bundle,
    load_bundle,
    write_facts,
)
from gptcore.checks import UserError
from gptcore.facts import Check
from training.machine.progress import waiting

CONTRACT, PAGE, VECTORS = "contract.json", "CONTRACT.md", "vectors.json"
# The sampling graphs, by the variant whose weights they use.
SAMPLING = {name: file.replace("serving", "sampling") for name, file in SERVING.items()}


def write_kit(model: Path, out: Path) -> None:
    """Write the kit of a model folder; raises UserError if it has no portable graph in fp32."""
    bundle = load_bundle(model)
    if "fp32" not in bundle.variants:
        raise UserError(
            f"{model} has no {ONNX.as_posix()}, from which a kit's vectors are computed: "
            f"export the run again, or take a folder that has it, such as models/nano"
        )
    with replacing(out, "kit", CONTRACT) as folder:
        copy_files(bundle.path, folder, filter(is_for_others, bundle.facts.sha256))
        write_card(folder / "README.md", bundle.facts, read_hub(bundle.path))
        kit = replace(bundle, path=folder)
        print_report(add_sampling(kit))
        graphs = graphs_of(kit)
        vectors, facts = make_vectors(kit), contract(kit, graphs)
        write_lines(folder / VECTORS, vectors)
        write_lines(folder / CONTRACT, facts)
        (folder / PAGE).write_text(page(kit, facts, vectors), encoding="utf-8", newline="\n")
        write_facts(folder, bundle.facts)
    print(f"wrote {out}; read {out / PAGE} first")


def is_for_others(name: str) -> bool:
    """Return whether a file of a model folder is of use to programs that run its graphs alone."""
    ours = {INSPECT, UNTRAINED, *SERVING.values()}
    return name not in ours and not name.endswith((".safetensors", INDEX))


@waiting("writing and comparing the sampling graphs")
def add_sampling(kit: Bundle) -> list[Check]:
    """Write the sampling graphs; raises UserError if one chooses other tokens than the engine."""
    checks = []
    for variant in [name for name in SAMPLING if name in kit.variants]:
        source, path = kit.path / VARIANTS[variant], kit.path / SAMPLING[variant]
        write_sampling(source, path)
        checks.append(compare_sampling(source, path, kit.config))
    require_passed(
        checks, "a sampling graph chooses other tokens than the engine: no kit was written"
    )
    return checks


def graphs_of(kit: Bundle) -> dict[str, str]:
    """Return the files of the kit's graphs: the portable and the sampling one first."""
    others = {name: VARIANTS[name] for name in kit.variants if name != "fp32"}
    others |= {f"sampling, {name}": SAMPLING[name] for name in SAMPLING if name in others}
    return {"portable": VARIANTS["fp32"], "sampling": SAMPLING["fp32"]} | others


def write_lines(path: Path, values: dict[str, Any]) -> None:
    """Write one item of a list a line, in ASCII, so that no editor changes a character."""
    entries = [f"{json.dumps(key)}: {lines_of(value)}" for key, value in values.items()]
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="ascii", newline="\n")


def lines_of(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)
