"""Makes a small copy of a model folder for a plain `git push`: no fp32, no file over 10 MB.

>>> ship(Path("models/whole"), Path("models/default"), None)         # doctest: +SKIP

The copy has q8 or q4, whichever is more accurate, and the file for browsers, the tokenizer, the
configurations, and a smaller graph for the Inspect tab. The measurements of the complete folder
stay in its card, and the scores of `python -m training evaluate --out` are added to it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from export.folder.card import read_hub, write_card
from export.folder.copy import copy_files
from export.folder.replace import check_model_folder
from export.folder.transformers_js import tell_transformers_js
from export.formats.model_folder import check_not_small
from export.quantize.save import save_quantized
from gptcore.bundle import (
    INDEX,
    INSPECT,
    SERVING,
    VARIANTS,
    Bundle,
    graph_bytes,
    load_bundle,
    write_facts,
)
from gptcore.checks import UserError
from gptcore.facts import Scores
from gptcore.system.files import files_in, new_folder, read_json, write_json
from gptcore.typed_json import read_as

MAX_BYTES = 10_000_000  # largest file that the Hub accepts without LFS
BROWSERS = "int8"
SERVED = ("q8", "q4")  # by our engine; a training goes on from these, too
INSPECT_FORMAT = "q8"


def ship(source: Path, out: Path, scores: Scores | None) -> None:
    """Write `out` from the complete folder `source`; raises UserError if a file is too large."""
    bundle = load_bundle(source)
    check_not_small(bundle)
    if out.resolve() == bundle.path.resolve():
        raise UserError(f"--out {out} is the folder to ship, which would lose fp32: name another")
    check_model_folder(out, bundle.facts)
    kept = kept_variants(bundle)
    variants = {name: bundle.facts.variants[name] for name in kept}
    facts = replace(bundle.facts, variants=variants, evaluation=scores or bundle.facts.evaluation)
    unneeded = {INDEX, INSPECT, *VARIANTS.values(), *SERVING.values()}
    names = [
        name
        for name in bundle.facts.sha256
        if name not in unneeded and not name.endswith((".onnx_data", ".safetensors"))
    ]
    graphs = [SERVING[name] for name in kept if name in bundle.serving]
    with new_folder(out) as folder:
        copy_files(bundle.path, folder, [*names, *graphs, *(VARIANTS[name] for name in kept)])
        if INSPECT in bundle.facts.sha256:
            save_quantized(bundle.path / INSPECT, folder / INSPECT, INSPECT_FORMAT)
        name_file(folder / "genai_config.json", VARIANTS[kept[0]])
        tell_transformers_js(folder, kept)
        write_card(folder / "README.md", facts, read_hub(source))
        for name, path in files_in(folder).items():
            check_size(name, path.stat().st_size)
        write_facts(folder, facts)


def kept_variants(bundle: Bundle) -> list[str]:
    """Return the more accurate file of SERVED, then the one for browsers; raises UserError."""
    rows = bundle.facts.variants
    small = [name for name in (*SERVED, BROWSERS) if name in rows and name in bundle.variants]
    if BROWSERS not in small or len(small) < 2:
        raise UserError(
            f"{bundle.path} has too few smaller files: export it with --quantize q8,{BROWSERS}"
        )
    best = min(small[:-1], key=lambda name: (rows[name].bits_per_byte, rows[name].divergence))
    kept = [best, BROWSERS]
    for name in kept:  # of a large one the weights lie beside the graph
        check_size(VARIANTS[name], graph_bytes(bundle.path / VARIANTS[name]))
    return kept


def name_file(path: Path, file: str) -> None:
    """Make onnxruntime-genai read this file."""
    if path.is_file():
        config = read_json(path)
        config["model"]["decoder"]["filename"] = file
        write_json(path, config)


def check_size(name: str, n_bytes: int) -> None:
    if n_bytes > MAX_BYTES:
        raise UserError(
            f"{name} has {n_bytes / 1e6:.1f} MB, over {MAX_BYTES / 1e6:.0f}: train a smaller "
            f"model, or upload the whole one with python -m export push"
        )


def read_scores(paths: Sequence[Path]) -> Scores | None:
    """Return evaluations, without their replies, as one table with the skills of each suite.

    Only the first suite's row of all skills is kept. Raises UserError.
    """
    found = [read_score(path) for path in paths]
    if not found:
        return None
    if len(seeds := {scores.n_seeds for scores in found}) > 1:
        raise UserError(f"--scores were sampled {sorted(seeds)} times: use one --seeds for all")
    others = {
        name: skill
        for scores in found[1:]
        for name, skill in scores.skills.items()
        if name != "all"
    }
    return replace(found[0], skills=found[0].skills | others)


def read_score(path: Path) -> Scores:
    try:
        found = read_json(path)
        kept = {key: found[key] for key in ("skills", "n_seeds")}
        return read_as(Scores, kept | {"copies": found.get("copies", {})}, str(path))
    except (OSError, ValueError, LookupError, TypeError):
        raise UserError(
            f"--scores {path} is not a file that python -m training evaluate wrote"
        ) from None
