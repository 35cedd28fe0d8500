"""Where texts are: files, folders, patterns, addresses, and what is packed inside a file.

>>> [file.name for file in find_files(["README.md"])]                  # doctest: +SKIP
['README.md']

A file from an address is fetched once into the cache folder, under a name that changes with its
size and its version.
"""

import gzip
import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from gptcore.checks import UserError, closest, nearest_beside
from gptcore.system.files import cache_folder, locked, new_file
from training.formats.found import Unreadable

DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError)
MAX_NESTED = 3  # archives within archives
MAX_RATIO = 200  # of a zip member's size to its packed size; text packs to a tenth or so
ZSTD_PART = 1 << 13  # bytes; even if they are nothing but repetition, they fit into memory
LARGE = 50_000_000  # bytes; a smaller zip member may pack as well as it likes
BOOK = "META-INF/container.xml"  # what every EPUB holds
ZSTD, GZIP, ZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"PK\x03\x04"
TIMEOUT = 60.0  # seconds without data after which a download fails
PACKED_NAMES = (".gz", ".zst", ".zstd")


@dataclass(frozen=True)
class File:
    """A file of bytes, maybe inside an archive; `open` starts from its beginning."""

    name: str  # as people know it: "chats.zip/2024.csv"
    open: Callable[[], BinaryIO]
    size: int  # bytes as it is stored
    is_named: bool = True  # by the user, rather than found in a folder or an archive

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
            raise UserError(f"{path} holds no file: name files, or a folder with texts")
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
    """Return the files of a folder and of those in it, without the hidden ones, in order."""
    return [p for p in sorted(folder.rglob("*")) if p.is_file() and not is_hidden(p, folder)]


def nearest_pattern(pattern: Path) -> str:
    """Return a question after the pattern that finds files by their own ending, or ""."""
    others = map(Path, glob(str(pattern.with_suffix(".*")), recursive=True))  # noqa: PTH207
    near = closest(pattern.suffix, {path.suffix for path in others if path.is_file()} - {""})
    return f"did you mean '{pattern.with_suffix(near)}'?" if near else ""


def n_hidden(places: Iterable[str | Path]) -> int:
    """Return how many hidden files find_files leaves out of folders."""
    folders = [Path(place) for place in places if Path(place).is_dir()]
    return sum(
        p.is_file() and is_hidden(p, folder) for folder in folders for p in folder.rglob("*")
    )


def is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def local_file(path: Path, name: str | None = None, is_named: bool = True) -> File:
    return File(name or str(path), lambda: open(path, "rb"), path.stat().st_size, is_named)


def fetched(address: str) -> list[File]:
    """Fetch what an address names, with fsspec, unless the cache has it already.

    Raises UserError if it cannot be had.
    """
    from fsspec.callbacks import TqdmCallback

    try:
        system, path = open_filesystem(address)
        files = []
        for found in paths_at(system, path):
            target = cache_folder() / "texts" / version_of(system, found)
            with locked(target.with_suffix(".lock")):  # another process may be fetching it
                if not target.is_file():
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


def unpacked(file: File, depth: int) -> Iterator[File]:
    """Yield the files packed in a file, which may be packed too, or itself if it is not packed.

    `depth` says in how many others it is. Raises Unreadable or one of DAMAGED.
    """
    with file.open() as stream:
        head = stream.read(64)
    if not head.startswith((ZSTD, GZIP, ZIP)) or is_book(head):
        yield file
    elif depth == MAX_NESTED:
        raise Unreadable(f"it is packed more than {MAX_NESTED} times")
    elif head.startswith(ZIP):
        yield from members(file)
    else:
        opener = open_gzip if head.startswith(GZIP) else open_zstd
        yield File(file.name, lambda: opener(file.open()), file.size, file.is_named)


def every_file(file: File, depth: int = 0) -> Iterator[File]:
    """Yield the files packed in a file at any depth, each to be read before the next one."""
    for inner in unpacked(file, depth):
        if inner is file:
            yield file
        else:
            yield from every_file(inner, depth + 1)


def check_office(names: list[str]) -> None:
    """Raise Unreadable if a zip file is a document of Word, Excel, LibreOffice and the like."""
    is_apple = any(name.endswith(".iwa") for name in names)  # Pages, Numbers, Keynote
    is_libre = {"mimetype", "content.xml"} <= {*names}
    if is_apple or is_libre or "[Content_Types].xml" in names:
        raise Unreadable("it is an Office document: save it as text, CSV or PDF")


def is_book(head: bytes) -> bool:
    """Whether a zip file is an EPUB, whose first member says so uncompressed."""
    return b"mimetypeapplication/epub+zip" in head


def members(file: File) -> Iterator[File]:
    with file.open() as stream, open_zip(stream) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        names = [info.filename for info in infos]
        if BOOK in names:  # an EPUB that was packed again, so that its first member says nothing
            yield file
            return
        check_office(names)
        for info in sorted(infos, key=lambda info: info.filename):
            is_hidden = PurePosixPath(info.filename).name.startswith(".")
            if not is_hidden and "__MACOSX" not in info.filename:
                yield member(archive, info, f"{file.name}/{info.filename}")


def member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> File:
    """Return a file that can be opened while the archive is open."""

    def opened() -> BinaryIO:
        if info.file_size > max(LARGE, MAX_RATIO * info.compress_size):
            raise Unreadable(
                f"it unpacks from {info.compress_size:,} to {info.file_size:,} bytes, as no text "
                f"does: unpack it by hand if it is one"
            )
        return open_member(archive, info)

    return File(name, opened, info.compress_size, is_named=False)


def open_zip(stream: BinaryIO) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(stream)
    except ValueError as error:  # a place before the beginning, or a name that is no text
        raise zipfile.BadZipFile(str(error)) from None


def open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo | str) -> BinaryIO:
    try:
        return cast(BinaryIO, archive.open(member))
    except ValueError as error:
        raise zipfile.BadZipFile(str(error)) from None
    except RuntimeError:  # what zipfile raises for want of a password
        raise Unreadable("it is packed with a password: pack it without one") from None


def open_gzip(stream: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))


def open_zstd(stream: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(Parts(zstd_parts(stream))))


def zstd_parts(stream: BinaryIO) -> Iterator[bytes]:
    """Yield what is in all frames. Raises Unreadable for a cut or a damaged one."""
    import zstandard

    frame = None
    try:
        while data := stream.read(ZSTD_PART):
            while data:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                yield frame.decompress(data)
                data, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    except zstandard.ZstdError as error:
        raise Unreadable(f"it is a damaged archive ({error}): fetch or pack it again") from None
    if frame:  # which zstandard's own reader does not say
        raise Unreadable("it is an archive that was cut before its end: fetch or pack it again")


class Parts(io.RawIOBase):
    """A stream of bytes that come in parts."""

    def __init__(self, parts: Iterator[bytes]):
        self.parts, self.rest = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.rest:
            part = next(self.parts, None)
            if part is None:
                return 0
            self.rest = memoryview(part)
        n = min(len(buffer), len(self.rest))
        buffer[:n], self.rest = self.rest[:n], self.rest[n:]
        return n
