"""PDF to text: the lines that PDFium finds on the pages, joined to paragraphs by where they stand.

>>> reflowed("A para-\\ngraph of\\ntwo lines.\\n\\nAn E-\\nBike.\\u2028Short lines\\u2028stay.")
'A paragraph of two lines.\\n\\nAn E-Bike.\\nShort lines\\nstay.'
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple
from unicodedata import normalize

from training.formats.documents.books import damaged, text_of_block
from training.formats.documents.questions import documents_in
from training.formats.found import Asked, Found, Skip, Unreadable
from training.formats.places import File

SIGNS = dict.fromkeys((*range(32), 127), "") | {  # control characters
    code: normalize("NFKC", chr(code))
    for code in range(0xFB00, 0xFB07)  # and letters in one, as in ﬁ
}
# Older fonts of LaTeX do not say which letters these are (T1, the encoding of Cork).
SIGNS |= dict(zip(range(0x1B, 0x20), ("ff", "fi", "fl", "ffi", "ffl")))
SIGNS[0xFFFE] = "-\n"  # where PDFium has joined a word, which it also does to E- and Bike
LEADER = re.compile(r"(?:\. *){5}\d+ *$")  # leads the eye to the number of a page
LONGEST_WORD = 24  # letters; few words of German are longer
MANY = 4  # such words: fewer may be addresses

WRAP, END, PARAGRAPH = "\n", "\u2028", "\n\n"  # what is between two lines
BULLETS = tuple("•◦▪‣∙●○■–")
WIDE = "[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]"  # Chinese and Japanese have no spaces
NEAR = 10  # lines before and after one, among which its margin is looked for
INDENT = 40  # points; what is further from the left is in another column
GAP = 1.3  # times the usual distance of lines


class Line(NamedTuple):
    """A line of a page and where it stands, in points from the lower left."""

    text: str
    left: float
    right: float
    top: float  # below its first letter
    bottom: float  # below its last letter, in the next line if PDFium has joined a divided word
    first: float  # width of its first word


def read_pdf(file: File, asked: Asked) -> Found:
    """Yield the pages' text of a PDF as one text."""
    from pypdfium2 import PdfDocument, PdfiumError
    from pypdfium2.raw import FPDF_ERR_PASSWORD

    with file.open() as stream:
        data = stream.read()
    try:
        document = PdfDocument(data)
    except PdfiumError as error:
        if error.err_code == FPDF_ERR_PASSWORD:
            raise Unreadable("it is a PDF with a password: save it without one") from None
        raise damaged("PDF", error) from None
    pages: list[list[Line]] = []
    skipped: list[Skip] = []
    for i in range(len(document)):
        try:
            pages.append(list(lines_of(document[i].get_textpage())))
        except (PdfiumError, AssertionError) as error:  # which pypdfium2 raises, too
            skipped.append(Skip(f"page {i + 1}", str(damaged("page", error))))
    if skipped and not pages:
        raise Unreadable(skipped[0].reason)
    kind = f"PDF of {len(pages)} page{'s' * (len(pages) != 1)}"
    pages, n_titles = without_titles(pages)
    text = reflowed(joined([line for page in pages for line in page]))
    if not text:
        raise Unreadable(f"it is a {kind} without text: a scan needs OCR first")
    if runs_together(text):
        raise Unreadable(
            f"it is a {kind} whose words run together: save it as text from a viewer, or with "
            f"poppler's pdftotext"
        )
    kind += f" without {n_titles:,} lines that recur above or below them" if n_titles else ""
    yield from skipped
    yield from documents_in(kind, text, asked)


def lines_of(page: Any) -> Iterator[Line]:
    """Yield the lines of PDFium's page of text that have words, but for those of its contents."""
    from pypdfium2.raw import FPDFText_GetCharIndexFromTextIndex as index_of

    start = 0
    for line in page.get_text_range().split("\r\n"):
        text = line.translate(SIGNS).strip()
        if text and not LEADER.search(text):
            word = re.search(rf"{WIDE}|\S+", line)
            assert word is not None
            at = (word.start(), word.end() - 1, len(line.rstrip()) - 1)
            boxes = [page.get_charbox(index_of(page, start + i), loose=True) for i in at]
            (left, top, _, _), (_, _, end, _), (_, bottom, right, _) = boxes
            # A comma of Chinese cannot begin a line, so the line before may end earlier.
            first = (end - left) * (3 if re.match(WIDE, word[0]) else 1)
            yield Line(text, left, right, top, bottom, first)
        start += len(line) + 2


def without_titles(pages: list[list[Line]]) -> tuple[list[list[Line]], int]:
    """Return the pages without running titles and page numbers, and how many lines these were.

    Such a line is one of the first or last two of its page. On more than half of the pages, or of
    those on the left or on the right of an open book, such a line is the same but for numbers, or
    has the number of the page at its beginning or end.
    """

    def keys(page: int, line: Line) -> Iterator[str | int | tuple[int, str]]:
        text = re.sub(r"\d+", "0", line.text)
        yield from (text, (page % 2, text))
        for number in re.findall(r"^\d{1,4}\b|\b\d{1,4}$", line.text):
            yield int(number) - page

    def edges(page: list[Line]) -> set[Line]:
        return {*page[:2], *page[-2:]}

    count = Counter(
        key
        for i, page in enumerate(pages)
        for key in {key for line in edges(page) for key in keys(i, line)}
    )

    def recurs(key: str | int | tuple[int, str]) -> bool:
        return count[key] > max(2, len(pages) // (4 if isinstance(key, tuple) else 2))

    kept = [
        [line for line in page if line not in edges(page) or not any(map(recurs, keys(i, line)))]
        for i, page in enumerate(pages)
    ]
    return kept, sum(map(len, pages)) - sum(map(len, kept))


def joined(lines: Sequence[Line]) -> str:
    """Return the text of the lines, with WRAP, END or PARAGRAPH between each two."""
    gaps = [line.bottom - following.top for line, following in pairwise(lines)]
    usual = median([gap for gap in gaps if gap > 0] or [0.0])
    text = lines[0].text if lines else ""
    for i, (gap, following) in enumerate(zip(gaps, lines[1:])):
        if gap > GAP * usual:
            text += PARAGRAPH
        elif following.text.startswith(BULLETS) or has_room(lines, i, following.first):
            text += END
        else:
            text += WRAP
        text += following.text
    return text


def has_room(lines: Sequence[Line], i: int, word: float) -> bool:
    """Return whether line `i` has room for a word of this width: if so, the author ended it.

    The margin is the third longest of the lines around it in its column, as a title or another
    column may be longer.
    """
    near = lines[max(0, i - NEAR) : i + NEAR + 1]
    ends = sorted(line.right for line in near if abs(line.left - lines[i].left) < INDENT)
    return lines[i].right + word < ends[-min(3, len(ends))]


def runs_together(text: str) -> bool:
    """Whether a tenth of the letters are in words that are too long to be any.

    Only words of Latin letters are looked at: Chinese has no spaces. An address may be a long one.
    """
    long = [word for word in re.findall(r"[A-Za-z]+", text) if len(word) > LONGEST_WORD]
    return len(long) >= MANY and 10 * sum(map(len, long)) > sum(map(str.isalpha, text))


def reflowed(text: str) -> str:
    """Join the lines of each paragraph, and the halves of words that were divided.

    A browser divides with U+2010. A hyphen before a capital or a number is part of the word.
    """
    hyphen = re.compile(r"(?<=\w)[-\u2010]\n(?=(\w))")
    text = hyphen.sub(lambda found: "" if found[1].islower() else "-", text)
    text = re.sub(rf"(?<={WIDE})\n(?={WIDE})", "", text)
    paragraphs = map(text_of_block, text.split(PARAGRAPH))
    return PARAGRAPH.join(paragraph for paragraph in paragraphs if paragraph)
