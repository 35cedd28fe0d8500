"""Pages and books to texts: HTML, EPUB and PDF, through the readers of others.

>>> reflowed("A para-\\ngraph of\\ntwo lines.\\n\\nAn E-\\nBike.")
'A paragraph of two lines.\\n\\nAn E-Bike.'
"""

import posixpath
import re
import zipfile
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unicodedata import normalize
from urllib.parse import quote, unquote, urldefrag

from training.formats.found import Asked, Found, Kind, NoText, Skip, Unreadable
from training.formats.packed import BOOK, DAMAGED, open_member, open_zip, seekable
from training.formats.places import File
from training.formats.texts import cut_up

MAX_PAGE = 50_000_000  # bytes of one page of HTML
EXPORTED = {  # what the pages of chats have
    b"<title>Exported Data</title>": "of Telegram",
    b'<div class="chatlog">': "of Discord",
    b"_3-95 _2ph- _a6-g": "of Facebook or Instagram",
    b'<section class="_a6-g': "of Facebook or Instagram",
}
PILCROW = "¶"  # a link to the heading before it, in the pages of Sphinx and others
SPACES = re.compile(r"[ \t\n\f\r]+")  # one space in HTML; a no-break space is another
NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # lxml reads them and sets none
BLANKS = re.compile(r" +\n(?: (?! ))?|\n (?! )")  # about the end of a line; code is indented more
LOCKS = "META-INF/encryption.xml"  # what is encrypted in an EPUB: chapters, or fonts alone
SIGNS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "") | {  # control characters
    code: normalize("NFKC", chr(code))
    for code in range(0xFB00, 0xFB07)  # and letters in one, as in ﬁ
}
SIGNS[0xFFFE] = "-\n"  # where PDFium has joined a word, which it also does to E- and Bike
LEADER = re.compile(r"(?:\. *){5}\d+ *$")  # leads the eye to the number of a page
LONGEST_WORD = 24  # letters; few words of German are longer
MANY = 4  # such words: fewer may be addresses
BLOCKS = """
address article aside blockquote caption center dd div dl dt figcaption figure footer h1 h2 h3 h4
h5 h6 header hr li main nav ol p pre section table td th tr ul
"""


def read_html(file: File, asked: Asked) -> Found:
    """Yield the text of a web page, without its menus and scripts."""
    yield Kind("HTML, its text without menus and scripts", is_cut=True)
    with file.open() as stream:
        page = stream.read(MAX_PAGE + 1)
    if len(page) > MAX_PAGE:
        raise Unreadable(f"it is a page of more than {MAX_PAGE:,} bytes: divide it")
    for sign, what in EXPORTED.items():
        if sign in page:
            raise Unreadable(f"it is an export {what} as HTML: export it as JSON")
    yield from cut_up([words_of(page)], asked)


def damaged(kind: str, error: Exception) -> Unreadable:
    reason = f"{type(error).__name__}: {error}"
    return Unreadable(f"it is a damaged {kind} ({reason}): fetch it again, or save it as text")


def words_of(page: bytes) -> str:
    import trafilatura

    if (
        b"html" not in page[:4096].lower() and b"\0" not in page[:64]
    ):  # which a part of a page lacks
        page = b"<html><body>" + page + b"</body></html>"
    tree = trafilatura.load_html(page)
    if tree is None:
        raise NoText("it is HTML without words")
    for link in tree.xpath(f'//a[normalize-space()="{PILCROW}"]'):
        link.drop_tree()
    blank(tree, NO_XML)
    blank(tree, SPACES, "//text()[not(ancestor::pre)]")  # as a browser shows them
    text = trafilatura.extract(tree, include_comments=False, favor_recall=True)
    text = text or trafilatura.html2txt(tree)
    if not (text and text.strip()):
        raise NoText("it is HTML without words")
    return BLANKS.sub("\n", text)


def blank(tree: Any, pattern: re.Pattern[str], path: str = "//text()") -> None:
    """Put a space where the texts of a tree have what the pattern matches."""
    for words in tree.xpath(path):
        setattr(words.getparent(), "tail" if words.is_tail else "text", pattern.sub(" ", words))


def read_epub(file: File, asked: Asked) -> Found:
    """Yield the chapters of an EPUB in the order in which they are read."""
    yield Kind("EPUB", is_cut=True)
    with seekable(file) as stream, open_zip(stream) as book:
        for name in spine(book):
            try:
                text = chapter(page_of(book, name))
            except (Unreadable, *DAMAGED) as error:
                yield Skip(name, str(error))
            else:
                yield from cut_up([text], asked)


def page_of(book: zipfile.ZipFile, name: str) -> bytes:
    """Return a chapter's bytes. Raises Unreadable for one that is missing, locked or too large."""
    if name not in book.namelist():
        raise Unreadable("it is a chapter that the book names and does not hold")
    if LOCKS in book.namelist() and quote(name).encode() in read_member(book, LOCKS):
        raise Unreadable("it is a chapter locked by the shop (DRM): use a book without a lock")
    if book.getinfo(name).file_size > MAX_PAGE:
        raise Unreadable(f"it is a chapter of more than {MAX_PAGE:,} bytes: divide it")
    return read_member(book, name)


def read_member(book: zipfile.ZipFile, name: str) -> bytes:
    with open_member(book, name) as stream:
        return stream.read()


def spine(book: zipfile.ZipFile) -> Iterator[str]:
    """Yield the names of the chapters' files (EPUB 3.3, sections 4.2.6.3 and 5.7)."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
    try:
        container = etree.fromstring(read_member(book, BOOK), parser)
        package_name = container.find(".//{*}rootfile").get("full-path")
        package = etree.fromstring(read_member(book, package_name), parser)
        items = {item.get("id"): item.get("href") for item in package.iterfind(".//{*}item")}
        for ref in package.iterfind(".//{*}itemref"):
            href = unquote(urldefrag(items[ref.get("idref")])[0])  # it is a URL
            yield posixpath.normpath(posixpath.join(posixpath.dirname(package_name), href))
    except (KeyError, AttributeError, TypeError, etree.XMLSyntaxError) as error:
        raise damaged("EPUB", error) from None


def chapter(page: bytes) -> str:
    """Return the words of a chapter, with an empty line between its blocks."""
    from lxml import etree, html

    try:
        parser = html.HTMLParser(encoding=encoding_of_page(page))
        body = html.document_fromstring(page, parser=parser).find(".//body")
    except (etree.ParserError, LookupError) as error:
        raise Unreadable(f"it is a chapter that cannot be read ({error})") from None
    if body is None:
        return ""
    etree.strip_elements(body, "script", "style", with_tail=False)
    blank(body, NO_XML)
    for line_end in body.iter("br"):
        line_end.tail = "\u2028" + (line_end.tail or "")
    for block in body.iter(*BLOCKS.split()):  # which may hold others, and words between them
        block.text = "\u2029" + (block.text or "")
        block.tail = "\u2029" + (block.tail or "")
    texts = (text_of_block(text) for text in body.text_content().split("\u2029"))
    return "\n\n".join(text for text in texts if text)


def text_of_block(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.split("\u2028")).strip()


def encoding_of_page(page: bytes) -> str | None:
    """Return the encoding that XML's rules give a page, or None where HTML's ways will find it."""
    if declared := re.search(rb"<\?xml[^>]*encoding=[\"']([\w.-]+)", page[:1024]):
        return declared[1].decode()
    is_html = page.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"charset=" in page[:1024]
    return None if is_html else "utf-8"


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
    pages: list[str] = []
    skipped: list[Skip] = []
    for i in range(len(document)):
        try:
            pages.append(without_signs(document[i].get_textpage().get_text_range()))
        except (PdfiumError, AssertionError) as error:  # which pypdfium2 raises, too
            skipped.append(Skip(f"page {i + 1}", str(damaged("page", error))))
    if skipped and not pages:
        raise Unreadable(skipped[0].reason)
    pages, n_titles = without_titles(pages)
    text = reflowed("\n".join(pages))
    kind = f"PDF of {len(pages)} page{'s' * (len(pages) != 1)}"
    if not text.strip():
        raise Unreadable(f"it is a {kind} without text: a scan needs OCR first")
    if runs_together(text):
        raise Unreadable(
            f"it is a {kind} whose words run together: save it as text from a viewer, or with "
            f"poppler's pdftotext"
        )
    kind += f" without {n_titles:,} lines that recur above or below them" if n_titles else ""
    yield Kind(kind, is_cut=True)
    yield from skipped
    yield from cut_up([text], asked)


def without_signs(page: str) -> str:
    """Return a page without what fonts have in place of letters, and the lines of its contents.

    >>> without_signs("1 Waves . . . . . 7\\n .  .  .  .  .  . 9 \\nThe \\ufb01rst\\x00 wave.")
    'The first wave.'
    """
    lines = page.replace("\r\n", "\n").translate(SIGNS).split("\n")
    return "\n".join(line for line in lines if not LEADER.search(line))


def runs_together(text: str) -> bool:
    """Whether a tenth of the letters are in words that are too long to be any.

    Only words of Latin letters are looked at: Chinese has no spaces. An address may be a long one.
    """
    long = [word for word in re.findall(r"[A-Za-z]+", text) if len(word) > LONGEST_WORD]
    return len(long) >= MANY and 10 * sum(map(len, long)) > sum(map(str.isalpha, text))


def without_titles(pages: list[str]) -> tuple[list[str], int]:
    """Return the pages without running titles and page numbers, and how many lines these were.

    Such a line is one of the first or last two of its page and, but for numbers, is there on more
    than half of the pages.
    """

    def edges(page: str) -> set[int]:
        filled = [i for i, line in enumerate(page.split("\n")) if line.strip()]
        return {*filled[:2], *filled[-2:]}

    def key(line: str) -> str:
        return re.sub(r"\d+", "0", line).strip()

    count = Counter(
        found
        for page in pages
        for found in {key(line) for i, line in enumerate(page.split("\n")) if i in edges(page)}
    )
    n_dropped, kept = 0, []
    for page in pages:
        lines, at = page.split("\n"), edges(page)
        drop = {i for i in at if len(pages) > 2 and 2 * count[key(lines[i])] > len(pages)}
        n_dropped += len(drop)
        kept.append("\n".join(line for i, line in enumerate(lines) if i not in drop))
    return kept, n_dropped


def reflowed(text: str) -> str:
    """Join the lines of each paragraph, and the halves of words that were divided.

    A browser divides with U+2010. A hyphen before a capital or a number is part of the word.
    """
    hyphen = re.compile(r"(?<=\w)[-\u2010]\n(?=(\w))")
    text = hyphen.sub(lambda found: "" if found[1].islower() else "-", text)
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())
