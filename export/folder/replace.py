"""Decides what --out may overwrite: only a folder of the same kind without the user's files.

>>> check_replaceable(Path("no such folder"), "site", "site.json")

A folder lists what it was written with, and the sha256 of each: a model folder or a kit in
gptcore.json, the others in files.json.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gptcore.bundle import CARD, FACTS, read_facts
from gptcore.checks import UserError
from gptcore.facts import ModelFacts
from gptcore.system.files import (
    FILES,
    LEFT,
    differs_in_line_ends,
    file_sha256,
    files_in,
    hashes,
    new_folder,
    read_object,
    write_json,
)
from gptcore.typed_json import read_as

STRAY = {".DS_Store", "Thumbs.db", "desktop.ini"}  # what looking at a folder leaves in it
CACHE = "__pycache__"  # which a Space that ran has in its folders


def check_outside(out: Path) -> None:
    """Raise UserError if `out` is inside a model folder, which would hold more than it lists."""
    for folder in out.resolve().parents:
        if (folder / FACTS).is_file():
            raise UserError(f"{out} is inside the model folder {folder}: choose another --out")


def check_replaceable(out: Path, kind: str, mark: str, unlisted: Iterable[str] = ()) -> None:
    """Raise UserError if `out` exists and contains anything that this program did not write so.

    `mark`: the file by which a folder of this kind is known. `unlisted`: what such a folder has
    (files, and folders that are ours as a whole) if it was written before they listed their files.
    An `out` inside a model folder is refused, too.
    """
    check_outside(out)
    if not out.exists():
        return
    known = {}
    if (out / mark).is_file():
        known = listed(out) or dict.fromkeys(unlisted, "")
    if not known:
        raise UserError(f"{out} exists and is not a {kind}: choose another --out")
    for path in sorted(out.rglob("*")):
        place = path.relative_to(out)
        is_stray = path.name in STRAY or LEFT.search(path.name) or CACHE in place.parts
        if is_stray or not path.is_file():
            continue
        if not known.keys() & {p.as_posix() for p in (place, *place.parents)}:
            raise UserError(
                f"{out} contains files of yours ({place.as_posix()}): choose another --out"
            )
        if mark == FACTS and place != Path(CARD):  # one that differs is damaged: write it again
            continue
        written = known.get(place.as_posix())
        if written and file_sha256(path) != written and not differs_in_line_ends(path, written):
            raise UserError(
                f"{path} was edited since this program wrote it: move it elsewhere, or choose "
                f"another --out"
            )


def listed(out: Path) -> dict[str, str]:
    """Return the files that a folder lists, with their sha256, and the list itself; {} without one.

    Raises UserError if the list is damaged.
    """
    try:
        if (out / FACTS).is_file():
            return {FACTS: "", **read_facts(out).sha256}
        if (path := out / FILES).is_file():
            return {FILES: "", **read_as(dict[str, str], read_object(path), str(path))}
    except UserError as error:
        raise UserError(f"{error}; delete {out} first, or choose another --out") from None
    return {}


@contextmanager
def replacing(out: Path, kind: str, mark: str, unlisted: Iterable[str] = ()) -> Iterator[Path]:
    """Yield a new folder, which replaces `out` at the end; raises as `check_replaceable` does."""
    check_replaceable(out, kind, mark, unlisted)
    with new_folder(out) as folder:
        yield folder
        if not (folder / FACTS).exists():
            write_list(folder)
        # again: a person may have put something there since
        check_replaceable(out, kind, mark, unlisted)


def write_list(folder: Path) -> None:
    write_json(folder / FILES, hashes(folder, files_in(folder)))


def check_model_folder(out: Path, facts: ModelFacts | None = None) -> None:
    """Call `check_replaceable` for a model folder.

    With the facts of the model to write, also raise UserError if `out` holds one of another origin.
    """
    check_replaceable(out, "model folder", FACTS)
    if facts and out.exists():
        check_origin(out, read_facts(out), origin(facts))


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
