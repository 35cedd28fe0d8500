"""Where texts are: files, folders, patterns and addresses.

>>> [file.name for file in find_files(["README.md"])]                  # doctest: +SKIP
['README.md']

A file from an address is fetched once into the cache folder, under a name that changes with its
size and its version.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from gptcore.checks import UserError, closest, nearest_beside
from gptcore.system.files import cache_folder, files_in, locked, new_file, read_sealed
from gptcore.system.wording import counted, word

TIMEOUT = 60.0  # seconds without data after which a download fails
SEALED = ("config.json", "manifest.json")  # of a run, and of token shards
PACKED_NAMES = (".gz", ".zst", ".zstd")
PAGES = (".html", ".htm", ".xhtml")
OF_PAGES = (".css", ".js", ".mjs", ".map")  # what a saved page brings along, and nobody reads


@dataclass(frozen=True)
class File:
    """A file of bytes, maybe inside an archive; `open` starts from its beginning."""

    name: str  # as people know it: "chats.zip/2024.csv"
    open: Callable[[], BinaryIO]
    size: int  # bytes as it is stored
    is_named: bool = True  # by the user, rather than found in a folder or an archive
    is_packed: bool = False  # so that its bytes come one after another

    @property
    def own_name(self) -> str:
        """Its name without the folders."""
        return PurePosixPath(self.name.replace("\\", "/")).name

    @property
    def inner_name(self) -> str:
        """Its own name without the compression's suffix, in lower case."""
        name = self.own_name.lower()
        for suffix in PACKED_NAMES:
            name = name.removesuffix(suffix)
        return name


def find_files(places: Iterable[str | Path]) -> list[File]:
    """Return the files at the given places, those of a folder or a pattern in order.

    Raises UserError for the places where nothing is.
    """
    found: list[File] = []
    bad: list[str] = []
    for place in places:
        try:
            found += files_at(str(place))
        except UserError as error:
            bad.append(str(error))
    if bad:
        raise UserError("; ".join(bad))
    return found


def files_at(place: str) -> list[File]:
    if "://" in place:
        return fetched(place)
    path = Path(place)
    if path.is_dir():
        if not (found := within(path)):
            if is_sealed(path / SEALED[0]):
                raise UserError(
                    f"{path} is a training run, not a text: did you mean --out {word(path)} "
                    f"--resume?"
                )
            raise UserError(f"{path} holds no text: name files, or a folder with texts")
        return [local_file(p, is_named=False) for p in found]
    if path.is_file():
        return [local_file(path)]
    matches = [Path(match) for match in sorted(glob(place, recursive=True))]  # noqa: PTH207
    inside = [p for match in matches for p in ([match] if match.is_file() else within(match))]
    if inside:  # each once: ** matches folders, too, and a link may lead to one of them
        once = {p.resolve(): p for p in reversed(inside)}
        return [local_file(p, is_named=False) for p in reversed(once.values())]
    hint = nearest_pattern(path) if "*" in path.name else nearest_beside(path)
    raise UserError(f"no such file or folder: {place}{hint and f': {hint}'}")


def within(folder: Path) -> list[Path]:
    """Return the files of a folder and of those in it, in order.

    Hidden ones are left out, what belongs to web pages, and those that a training wrote: it may run
    in the folder it reads.
    """
    ours = [p.parent for name in SEALED for p in folder.rglob(name) if is_sealed(p)]

    def is_ours(path: Path) -> bool:
        named = path.with_name(path.name.removesuffix(".lock"))  # beside the shards that it is for
        return any(named.is_relative_to(folder) for folder in ours)

    texts, _, _ = sorted_out(folder)
    return [path for path in texts if not is_ours(path)]


def sorted_out(folder: Path) -> tuple[list[Path], int, int]:
    """Return a folder's files with texts in order, the number of hidden ones, and of scripts."""
    files = files_in(folder)
    shown, texts = with_texts(files)
    return [files[name] for name in texts], len(files) - len(shown), len(shown) - len(texts)


def with_texts(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return which files of a folder or an archive are not hidden, and which of those hold texts.

    Scripts and style sheets are left out only where there are web pages.
    """
    shown = [n for n in names if not any(p.startswith(".") for p in PurePosixPath(n).parts)]
    others = OF_PAGES if any(name.lower().endswith(PAGES) for name in shown) else ()
    return shown, [name for name in shown if not name.lower().endswith(others)]


def is_sealed(path: Path) -> bool:
    try:
        return bool(read_sealed(path))
    except (OSError, UserError):
        return False


def nearest_pattern(pattern: Path) -> str:
    """Return a question after the pattern that finds files by their own ending, or ""."""
    others = map(Path, glob(str(pattern.with_suffix(".*")), recursive=True))  # noqa: PTH207
    near = closest(pattern.suffix, {path.suffix for path in others if path.is_file()} - {""})
    return f"did you mean '{pattern.with_suffix(near)}'?" if near else ""


def left_out(places: Iterable[str | Path]) -> Iterator[str]:
    """Yield a line for what find_files leaves out of folders."""
    folders = [Path(place) for place in places if Path(place).is_dir()]
    found = [sorted_out(folder) for folder in folders]
    if n := sum(n_hidden for _, n_hidden, _ in found):
        yield f"{counted(n, 'hidden file')} {'is' if n == 1 else 'are'} left out"
    if n := sum(n_of_pages for _, _, n_of_pages in found):
        yield (
            f"{counted(n, 'file')} with style or scripts of web pages "
            f"{'is' if n == 1 else 'are'} left out"
        )


def local_file(path: Path, name: str | None = None, is_named: bool = True) -> File:
    return File(name or str(path), lambda: open(path, "rb"), path.stat().st_size, is_named)


def fetched(address: str) -> list[File]:
    """Fetch the files that an address names with fsspec, unless they are cached; return them.

    Raises UserError if they cannot be fetched.
    """
    from fsspec.callbacks import TqdmCallback

    try:
        system, path = open_filesystem(address)
        files = []
        for found in paths_at(system, path):
            target = cache_folder() / "texts" / version_of(system, found)
            with locked(target.with_suffix(".lock")):  # another process may be fetching it
                if not target.is_file():
                    for left in target.parent.glob(f".{target.name}.*.tmp"):
                        left.unlink()  # of a command that was killed; it may be large
                    shown = {"desc": f"fetching {found}", "unit_scale": True}
                    with new_file(target) as temporary:
                        bar = TqdmCallback(tqdm_kwargs=shown)
                        system.get_file(found, str(temporary), callback=bar)
            name = system.unstrip_protocol(found)
            name = name.partition("?")[0] if "http" in system.protocol else name
            files.append(local_file(target, name, is_named=found == path))
    except UserError:
        raise
    except Exception as error:  # of as many kinds as there are file systems
        raise UserError(f"{address} cannot be read: {type(error).__name__}: {error}") from None
    if not files:
        raise UserError(f"{address} names no file: correct the address")
    return files


def open_filesystem(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it.

    Raises UserError if the URL's scheme is unknown or its driver is not installed.
    """
    import fsspec

    options = {}
    if url.startswith(("http:", "https:")):
        import aiohttp

        # By default aiohttp ends a download after five minutes.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=TIMEOUT)
        options["client_kwargs"] = {"timeout": timeout, "trust_env": True}
    try:
        return fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise UserError(f"{url} cannot be opened: {error}") from None


def paths_at(system: Any, path: str) -> list[str]:
    """Return the files that a path of a file system names, in order."""
    if "*" in path:
        return sorted(system.glob(path))
    if "http" in system.protocol:
        return [path]  # a web server does not list its files
    return sorted(system.find(path)) or [path]


def version_of(system: Any, path: str) -> str:
    """Return a file name that changes when the file at an address does."""
    info = {key: str(value) for key, value in sorted(system.info(path).items())}
    info.pop("url", None)  # where an address leads, which may be signed anew each time
    facts = json.dumps([system.unstrip_protocol(path), info])
    return hashlib.sha256(facts.encode()).hexdigest()[:32]
