"""What was found in the files of a training: their kinds, documents, and what is skipped and why.

>>> print(look(find_files(["chats.jsonl"])).table())                   # doctest: +SKIP
chats.jsonl: JSON lines, 812 conversations, 1.2 MB
  skipped 3: it is not JSON (Expecting value) (first: line 17)
"""

from collections import Counter
from dataclasses import dataclass, field

from training.data.corpus import cut_for, document_text
from training.formats.found import Asked, Item, Kind
from training.formats.places import File
from training.formats.reading import read_files
from training.machine.progress import progress

SHOWN_FILES, SHOWN_REASONS = 20, 8  # the others are counted


@dataclass
class FileLook:
    """What one file holds."""

    name: str
    kind: str = "not used"
    n_texts: int = 0
    n_chats: int = 0
    n_bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    first: dict[str, str] = field(default_factory=dict)  # where each reason was met first

    def lines(self) -> list[str]:
        """Return what it holds as a line, and a line for each reason to skip something."""
        counts = ((self.n_texts, "text"), (self.n_chats, "conversation"))
        held = [f"{n:,} {what}{'s' * (n != 1)}" for n, what in counts if n]
        size = [f"{self.n_bytes:,} bytes"] if held else []
        lines = [f"{self.name}: {', '.join([self.kind, *held, *size])}"]
        for reason, n in self.skipped.most_common(SHOWN_REASONS):
            where = f" (first: {self.first[reason]})" if self.first[reason] else ""
            lines.append(f"  skipped {n:,}: {reason}{where}")
        if n_others := sum(self.skipped.values()) - sum(
            n for _, n in self.skipped.most_common(SHOWN_REASONS)
        ):
            lines.append(f"  skipped {n_others:,} for other reasons")
        return lines


@dataclass
class Look:
    """What all files hold."""

    files: list[FileLook]

    def table(self) -> str:
        """Return the lines of the first files, and how many there are."""
        lines = [line for file in self.files[:SHOWN_FILES] for line in file.lines()]
        if others := self.files[SHOWN_FILES:]:
            n_skipped = sum(sum(file.skipped.values()) for file in others)
            lines.append(f"and {len(others):,} more files, in which {n_skipped:,} are skipped")
        return "\n".join(lines)


def look(files: list[File], asked: Asked = Asked()) -> Look:
    """Read all files once and count. Raises UserError for a named file that cannot be read."""
    found = []
    with progress(doing="looking", unit=" documents") as bar:
        for file, items in read_files(files, cut_for(files, asked)):
            one = FileLook(file.name)
            found.append(one)
            for item in items:
                if isinstance(item, Item):
                    bar.update()
                    one.n_texts += isinstance(item.document, str)
                    one.n_chats += not isinstance(item.document, str)
                    one.n_bytes += len(document_text(item.document).encode("utf-8"))
                elif isinstance(item, Kind):
                    one.kind = item.name
                else:
                    one.skipped[item.reason] += 1
                    one.first.setdefault(item.reason, item.where)
    return Look(found)
