"""The serving graphs of a model folder: one for each file whose weights they can use."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from export.formats.serving import can_serve, write_serving
from export.verify.report import require_passed
from export.verify.serving import compare_serving
from gptcore.bundle import SERVING, VARIANTS
from gptcore.config import ModelConfig
from gptcore.facts import Check
from gptcore.system.files import new_file
from training.machine.progress import waiting


def write_serving_graphs(
    folder: Path, config: ModelConfig, variants: Iterable[str], limit: float
) -> list[Check]:
    """Write the serving graph of each variant that can have one, and compare it.

    limit: the largest difference of logits that is allowed.
    Raises UserError if one differs from its portable graph; then none is written.
    """
    if not can_serve(config):
        return []
    checks = []
    with ExitStack() as files:  # they get their names together: gptcore.json lists all or none
        for variant in variants:
            if variant not in SERVING:
                continue
            source = folder / VARIANTS[variant]
            path = files.enter_context(new_file(folder / SERVING[variant]))
            with waiting(f"writing {Path(SERVING[variant]).name}"):
                write_serving(source, path, config)
            found = compare_serving(source, path, config, limit, Path(SERVING[variant]).name)
            require_passed(found, f"{folder / SERVING[variant]} differs from {source.name}")
            checks += found
    return checks
