"""The description of a data set: its licence, and the publisher's files that it is read from.

An address names a commit, so that what is there does not change. Where the hash of a file is
known it stands beside the address: the file is pinned. Where it is "", the first download is
trusted, which is said when it begins, and later ones must be the same. (GitHub's zips have no
hash that lasts.)

>>> origin = archive("owner/name", "1f0c", parse=lambda path: iter(["a story"]))
>>> origin.url, origin.file_name
('https://github.com/owner/name/archive/1f0c.zip', 'owner.name.1f0c.zip')
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from training.data.corpus import Document
from training.datasets.cleaning import Raw

HUB = "https://huggingface.co/datasets/"
Parser = Callable[[Path], Iterator[Raw]]
Derive = Callable[[Document], Iterator[Document]]


@dataclass(frozen=True)
class Origin:
    """A publisher's file and the function that parses it."""

    url: str
    parse: Parser
    sha256: str = ""

    @property
    def file_name(self) -> str:
        """The local file name: owner, repository and file, which is unique."""
        parts = urlsplit(self.url).path.removeprefix("/datasets").strip("/").split("/")
        return ".".join((parts[0], parts[1], parts[-1]))


@dataclass(frozen=True)
class Dataset:
    """A data set: its content, its terms of use, and its files."""

    about: str
    licence: str  # SPDX identifier, if there is one
    attribution: str
    origins: tuple[Origin, ...]
    prepared: str = "chat.jsonl.gz"  # name of the file that holds the cleaned documents
    source: str = ""  # name of the data set from which this one is derived
    derive: Derive | None = None  # makes documents of each document of `source`

    @property
    def homepage(self) -> str:
        """The page of the first repository."""
        url = self.origins[0].url.replace("raw.githubusercontent", "github")
        return "/".join(url.split("/")[: 6 if url.startswith(HUB) else 5])

    @property
    def share_alike(self) -> bool:
        """Whether the licence demands itself for what is made of the texts."""
        return "-SA-" in self.licence or "Sharing" in self.licence

    @property
    def trust(self) -> str:
        """How downloads are verified: "pinned", "first use", or "N of M pinned"."""
        n_pinned = sum(bool(origin.sha256) for origin in self.origins)
        if n_pinned == len(self.origins):
            return "pinned"
        return f"{n_pinned} of {len(self.origins)} pinned" if n_pinned else "first use"


def raw(repository: str, commit: str, path: str, parse: Parser, sha256: str = "") -> Origin:
    url = f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"
    return Origin(url, parse, sha256)


def archive(repository: str, commit: str, parse: Parser) -> Origin:
    """Return the origin of a whole GitHub repository; `commit` may be abbreviated."""
    return Origin(f"https://github.com/{repository}/archive/{commit}.zip", parse)


def hub(repository: str, commit: str, path: str, parse: Parser, sha256: str) -> Origin:
    return Origin(f"{HUB}{repository}/resolve/{commit}/{path}", parse, sha256)
