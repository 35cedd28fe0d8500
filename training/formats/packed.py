"""What is packed in a file: zip, gzip and zstd, in one another, and how it is opened.

>>> [file.name for file in every_file(local_file(Path("chats.zip")))]    # doctest: +SKIP
['chats.zip/2023.csv', 'chats.zip/2024.csv']
"""

import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

from training.formats.encoding import SAVE_OFFICE
from training.formats.found import Unreadable
from training.formats.places import File, with_texts

try:
    from lzma import LZMAError
except ImportError:  # in a Python that was built without it
    LZMAError = zlib.error  # type: ignore[misc, assignment]

# NotImplementedError is zipfile's, for a compression that it does not know.
DAMAGED = (
    EOFError,
    gzip.BadGzipFile,
    zlib.error,
    LZMAError,
    zipfile.BadZipFile,
    NotImplementedError,
)
MAX_NESTED = 3  # archives within archives
MAX_RATIO = 200  # of a file's size to its packed size; text packs to a tenth or so
ZSTD_PART = 1 << 13  # bytes; even if they are nothing but repetition, they fit into memory
ZSTD_WINDOW = 1 << 31  # bytes; what zstd --long=31 needs, as in archives of Reddit
LARGE = 50_000_000  # bytes; a smaller file may have any ratio
COPY_PART = 1 << 20  # bytes that are copied, or looked at, at a time
BOOK = "META-INF/container.xml"  # what every EPUB holds
SHEETS = "xl/workbook.xml"  # what every workbook of Excel holds
WORDS = re.compile(r"word/document\d*\.xml")  # what every document of Word holds
UTF_8 = 0x800  # the flag of a member of a ZIP archive whose name is UTF-8, not cp437
ZSTD, GZIP, ZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"PK\x03\x04"


def unpacked(file: File, depth: int) -> Iterator[File]:
    """Yield the files packed in a file, which may be packed too, or itself if it is not packed.

    `depth`: the number of files that it is packed in. Raises Unreadable or one of DAMAGED.
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
        yield File(file.name, lambda: opener(file.open()), file.size, file.is_named, is_packed=True)


def unpacked_size(file: File) -> int:
    """Return about how many bytes a file unpacks to, as an archive says or its beginning suggests.

    A file that cannot be unpacked counts as it is. The result is the same on every machine.
    """
    try:
        with file.open() as stream:
            head = stream.read(COPY_PART)
            if head.startswith(ZIP):
                with open_zip(stream) as archive:
                    return sum(info.file_size for info in archive.infolist())
    except (OSError, *DAMAGED):
        return file.size
    n_unpacked, n_read = 0, len(head)
    with suppress(Unreadable, zlib.error):
        if head.startswith(GZIP):
            member = zlib.decompressobj(wbits=31)
            n_unpacked = len(member.decompress(head, LARGE))
            n_read -= len(member.unused_data) + len(member.unconsumed_tail)
        elif head.startswith(ZSTD):
            for part in zstd_parts(io.BytesIO(head)):  # the last of which says that it is cut
                n_unpacked += len(part)
    return file.size * n_unpacked // n_read if n_unpacked else file.size


def every_file(file: File, depth: int = 0) -> Iterator[File]:
    """Yield the files packed in a file at any depth, each to be read before the next one."""
    for inner in unpacked(file, depth):
        if inner is file:
            yield file
        else:
            yield from every_file(inner, depth + 1)


def check_office(names: list[str]) -> None:
    """Raise Unreadable if a zip file is a document of LibreOffice, PowerPoint and the like."""
    is_apple = any(name.endswith(".iwa") for name in names)  # Pages, Numbers, Keynote
    is_libre = {"mimetype", "content.xml"} <= {*names}
    if is_apple or is_libre or "[Content_Types].xml" in names:
        raise Unreadable(f"it is an Office document: {SAVE_OFFICE}")


def is_book(head: bytes) -> bool:
    """Whether a zip file is an EPUB, whose first member says so uncompressed."""
    return b"mimetypeapplication/epub+zip" in head


@contextmanager
def seekable(file: File) -> Iterator[BinaryIO]:
    """Open a file whose parts are read in any order: a copy of a packed one.

    Raises Unreadable for one that is larger than any text.
    """
    with file.open() as stream:
        if not file.is_packed:
            yield stream
            return
        with SpooledTemporaryFile(max_size=LARGE) as copy:
            while part := stream.read(COPY_PART):
                copy.write(part)
                check_unpacked(file.size, copy.tell())
            copy.seek(0)
            yield cast(BinaryIO, copy)


def check_unpacked(packed: int, unpacked: int) -> None:
    if unpacked > max(LARGE, MAX_RATIO * packed):
        raise Unreadable(
            f"it unpacks from {packed:,} to {unpacked:,} bytes or more, as no text does: unpack it "
            f"by hand if it is one"
        )


def members(file: File) -> Iterator[File]:
    with seekable(file) as stream, open_zip(stream) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        names = [info.filename for info in infos]
        if BOOK in names:  # an EPUB that was packed again, so that its first member says nothing
            yield file
            return
        if SHEETS in names or any(map(WORDS.fullmatch, names)):
            for info in infos:  # which its reader unpacks
                check_unpacked(info.compress_size, info.file_size)
            yield file
            return
        check_office(names)
        texts = {*with_texts(names)[1]}
        for info in sorted(infos, key=lambda info: info.filename):
            if "__MACOSX" not in info.filename and info.filename in texts:
                yield member(archive, info, f"{file.name}/{name_of(info)}")


def name_of(info: zipfile.ZipInfo) -> str:
    """Return a packed file's name, which Macs write as UTF-8 without the flag that says so."""
    try:
        return info.filename if info.flag_bits & UTF_8 else info.filename.encode("cp437").decode()
    except UnicodeError:
        return info.filename


def member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> File:
    """Return a file that can be opened while the archive is open."""

    def opened() -> BinaryIO:
        check_unpacked(info.compress_size, info.file_size)
        return open_member(archive, info)

    return File(name, opened, info.compress_size, is_named=False, is_packed=True)


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

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    frame = None
    try:
        while data := stream.read(ZSTD_PART):
            while data:
                frame = frame or decompressor.decompressobj()
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
