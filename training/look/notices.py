"""What a person would want to know of texts before a model learns them.

>>> notices = Notices()
>>> for text in ["<p>Hello</p>", "Write to ann@example.org or call +49 30 1234567."]:
...     notices.add(text)
>>> for line in notices.lines():
...     print(line)
1 of 2 lines looks like markup, such as '<p>Hello</p>': a model will write it, too
1 e-mail address and 1 phone number, which a model may repeat
"""

import re
from collections import Counter

from gptcore.system.wording import counted

NOTICED = 10_000_000  # characters that are looked at; more would take minutes
STRETCH = 8  # characters; documents are alike if they share most of their stretches of this length
STRETCHES = 100_000  # of a document that are compared; each takes 70 bytes and a microsecond
ALIKE = (
    0.8  # estimated share of common stretches (Jaccard) from which documents are near duplicates
)
FEW = 0.01  # share of lines of markup that a text about web pages may have
SHOWN = 40  # characters of an example

MARKUP = re.compile(
    r"</?[A-Za-z][\w:-]*(?:\s[^<>]*)?/?>|&(?:[a-z]+|#\d+);|^\s*\"\w+\"\s*:|\{\{|\[\["
)
BINARY = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ufffd]|^[A-Za-z0-9+/]{60,}=*$")  # or base64
EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
PHONE = re.compile(  # +49 30 1234567, (212) 555-0123, and 0151 2345678
    r"(?<![\w.,-])(?:\+\d{1,3}[ ./-]?(?:\(?\d{1,5}\)?[ ./-]?){2,5}"
    r"|\(?\d{3}\)?[ .-]\d{3}[.-]\d{4}"
    r"|0[1-9]\d{1,3}[ /-]?\d{3,4}[ -]?\d{3,5})(?!\w)"
)


class Notices:
    """Counts, in the first texts of a corpus, what is unlike a text to learn from."""

    def __init__(self) -> None:
        from rensa import RMinHashDeduplicator

        self.alike = RMinHashDeduplicator(threshold=ALIKE, num_perm=128, use_lsh=True)
        self.known: set[str] = set()
        self.n_characters = self.n_lines = self.n_alike = 0
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.is_whole = True  # whether all texts were looked at

    def add(self, text: str) -> None:
        room = NOTICED - self.n_characters
        self.is_whole &= len(text) <= room
        text = text[:room]
        if not text:
            return
        self.n_characters += len(text)
        if text not in self.known:
            self.known.add(text)
            n_stretches = min(max(1, len(text) - STRETCH + 1), STRETCHES)
            stretches = [text[i : i + STRETCH] for i in range(n_stretches)]
            self.n_alike += not self.alike.add_pairs([(str(len(self.known)), stretches)])[0]
        lines = text.splitlines()
        self.n_lines += len(lines)
        for line in lines:
            for what, pattern in (("binary data", BINARY), ("markup", MARKUP)):
                if found := pattern.search(line):
                    self.count(what, line, found.start())
                    break
        if "@" in text:
            self.counts["e-mail address"] += len(EMAIL.findall(text))
        self.counts["phone number"] += len(PHONE.findall(text))

    def count(self, what: str, line: str, at: int) -> None:
        self.counts[what] += 1
        if what not in self.examples:
            self.examples[what] = words_around(line, at)

    def lines(self, n_equal: int = 0) -> list[str]:
        """Return a line for each thing noticed. `n_equal`: documents that occurred before."""
        notices = []
        if n_equal:
            equal = counted(n_equal, "document")
            notices.append(f"{equal} occurred before, word for word: kept, and learned more often")
        if n := self.n_alike:
            notices.append(f"{counted(n, 'document')} nearly like an earlier one")
        for what, few, advice in (
            ("binary data", 0, "clean the file"),
            ("markup", FEW * self.n_lines, "a model will write it, too"),
        ):
            if (n := self.counts[what]) > few:
                looks = "looks" if n == 1 else "look"
                notices.append(
                    f"{n:,} of {counted(self.n_lines, 'line')} {looks} like {what}, such as "
                    f"{self.examples[what]!r}: {advice}"
                )
        private = [
            counted(n, what)
            for what in ("e-mail address", "phone number")
            if (n := self.counts[what])
        ]
        if private:
            notices.append(f"{' and '.join(private)}, which a model may repeat")
        if notices and not self.is_whole:
            notices.append(f"(of the first {self.n_characters:,} characters)")
        return notices


def words_around(line: str, at: int) -> str:
    """Return the words of a line around a place, at most SHOWN characters.

    >>> words_around("Talked with [[Mr. Novak|old Novak]] about the rear rack.", 12)
    'with [[Mr. Novak|old Novak]] about the'
    """
    start = max(0, at - SHOWN // 4)
    if start:
        start = line.find(" ", start - 1, at) + 1 or start
    end = start + SHOWN
    if end < len(line):
        end = max(line.rfind(" ", at + 1, end + 1), 0) or end
    return line[start:end].strip()
