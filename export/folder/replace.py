"""Decides what --out may overwrite: only a folder of the same kind without the user's files.

>>> check_replaceable(Path("no such folder"), "site", lambda out: None)
"""

from collections.abc import Callable
from pathlib import Path

from gptcore.bundle import FACTS, read_facts
from gptcore.checks import UserError
from gptcore.facts import ModelFacts

# Returns the paths that a folder of some kind consists of (files, and folders that are ours as a
# whole), or None if the folder is of another kind.
Ours = Callable[[Path], set[str] | None]
# What looking at a folder leaves in it, and a killed `python -m export inspect`.
STRAY = {".DS_Store", "Thumbs.db", "desktop.ini", "inspect.onnx.tmp", "untrained.onnx.tmp"}


def check_replaceable(out: Path, kind: str, ours: Ours) -> None:
    """Raise UserError if `out` exists and contains anything that this program did not write."""
    if not out.exists():
        return
    known = ours(out)
    if known is None:
        raise UserError(f"{out} exists and is not a {kind}: choose another --out")
    for path in sorted(out.rglob("*")):
        place = path.relative_to(out)
        if not path.is_file() or path.name in STRAY:
            continue
        if not known & {p.as_posix() for p in (place, *place.parents)}:
            raise UserError(
                f"{out} contains files of yours ({place.as_posix()}): choose another --out"
            )


def check_model_folder(out: Path, facts: ModelFacts | None = None) -> None:
    """Call `check_replaceable` for a model folder, which lists its files.

    With the facts of the model to write, also raise UserError if `out` holds one of another origin.
    """
    check_replaceable(out, "model folder", listed)
    if facts and out.exists():
        check_origin(out, read_facts(out), origin(facts))


def listed(out: Path) -> set[str] | None:
    """Return the files that a model folder lists; raises UserError if that list is damaged."""
    if not (out / FACTS).is_file():
        return None
    try:
        return {FACTS, *read_facts(out).sha256}
    except UserError as error:
        raise UserError(f"{error}; delete {out} first, or choose another --out") from None


def check_imported(out: Path, source: str) -> None:
    """Raise UserError if `out` holds a model that was not made from this source elsewhere."""
    if out.exists():
        found = read_facts(out)
        check_origin(out, found, (source, found.parameters))


def check_origin(out: Path, found: ModelFacts, wanted: object) -> None:
    if origin(found) != wanted:
        raise UserError(
            f"{out} holds a model of another origin ({found.name}): choose another --out, or "
            f"delete that folder first"
        )


def origin(facts: ModelFacts) -> object:
    """Return what two exports of the same run, or of the same model made elsewhere, share.

    A run that goes on may change its settings; an import's --context changes the context.
    """
    if facts.training:
        return facts.config, facts.training.data
    return facts.imported and (facts.imported.source, facts.parameters)
