"""What a data set is: its licence, and the files at its publisher's that it is read from.

An address names a commit, so that what is there does not change. Where the hash of a file is
known it stands beside the address: the file is pinned. Where it is "", the first download is
trusted, which is said when it begins, and later ones must be the same. (GitHub's zips have no
hash that lasts.)

>>> origin = archive("owner/name", "1f0c", parse=lambda path: iter(["a story"]))
>>> origin.url, origin.file_name
('https://github.com/owner/name/archive/1f0c.zip', 'owner.name.1f0c.zip')
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from training.data.corpus import Document
from training.datasets.cleaning import Raw

Parser = Callable[[Path], Iterator[Raw]]
Derive = Callable[[Document], Iterator[Document]]


@dataclass(frozen=True)
class Origin:
    """A file at the publisher's, and what makes raw documents of it; None: it is plain text."""

    url: str
    parse: Parser | None
    sha256: str = ""

    @property
    def file_name(self) -> str:
        """Owner, repository and file, so that no two are the same."""
        parts = urlsplit(self.url).path.removeprefix("/datasets").strip("/").split("/")
        return ".".join((parts[0], parts[1], parts[-1]))


@dataclass(frozen=True)
class Dataset:
    """What a text is and under which terms it may be used."""

    about: str
    licence: str  # of SPDX's list, where it has it
    attribution: str
    homepage: str
    share_alike: bool = False
    origins: tuple[Origin, ...] = ()
    prepared: str = "chat.jsonl.gz"  # the file that holds it cleaned and ready
    source: str = ""  # the data set whose documents this one makes its own of ...
    derive: Derive | None = None  # ... by this

    @property
    def trust(self) -> str:
        """By which hashes downloads are checked: "pinned", "first use", or some of each."""
        n_pinned = sum(bool(origin.sha256) for origin in self.origins)
        if n_pinned == len(self.origins):  # of none, too: prepared files have known hashes
            return "pinned"
        return f"{n_pinned} of {len(self.origins)} pinned" if n_pinned else "first use"


def derived(name: str, source: Dataset, about: str, derive: Derive) -> Dataset:
    """What this project makes of another data set, under that one's terms."""
    attribution = f"{source.attribution}; questions by this project"
    return replace(source, about=about, attribution=attribution, source=name, derive=derive)


GITHUB = "https://github.com/"
HUB = "https://huggingface.co/datasets/"


def raw(repository: str, commit: str, path: str, parse: Parser | None, sha256: str = "") -> Origin:
    url = f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"
    return Origin(url, parse, sha256)


def archive(repository: str, commit: str, parse: Parser) -> Origin:
    """All of a repository (GitHub takes the beginning of a commit's name here, too)."""
    return Origin(f"{GITHUB}{repository}/archive/{commit}.zip", parse)


def hub(repository: str, commit: str, path: str, parse: Parser, sha256: str) -> Origin:
    return Origin(f"{HUB}{repository}/resolve/{commit}/{path}", parse, sha256)
