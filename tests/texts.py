"""Files as people have them, and what is read of them."""

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from training.data.corpus import Document, read_documents
from training.formats.found import Asked
from training.formats.places import find_files
from training.look.look import look

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]


def documents(*paths: Path, **asked: Any) -> list[Document]:
    return list(read_documents(find_files(paths), Asked(**asked)))


def told(path: Path, **asked: Any) -> str:
    return look(find_files([path]), Asked(**asked)).table()


def write(path: Path, content: Any) -> Path:
    """Write bytes; or a text, or a value as JSON, compressed if the name ends in .gz."""
    if not isinstance(content, bytes):
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        content = gzip.compress(data, 1) if path.suffix == ".gz" else data
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def zipped(members: dict[str, bytes | str], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():  # of no date: a test's name may be made of them
            archive.writestr(zipfile.ZipInfo(name), content, packing)
    return stream.getvalue()
