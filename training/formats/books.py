"""Pages and books to texts: HTML, EPUB and PDF, through the readers of others.

>>> reflowed("A para-\\ngraph of\\ntwo lines.\\n\\nAnother.")
'A paragraph of two lines.\\n\\nAnother.'
"""

import io
import logging
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Iterator

from training.formats.found import Asked, Found, Kind, NoText, Unreadable
from training.formats.places import File
from training.formats.texts import cut_up

MAX_PAGE = 50_000_000  # bytes of one page of HTML
CONTAINER = "META-INF/container.xml"


def read_html(file: File, asked: Asked) -> Found:
    """Yield the text of a web page, without its menus and scripts."""
    yield Kind("HTML, its text without menus and scripts", is_cut=True)
    with file.open() as stream:
        yield from cut_up([words_of(stream.read(MAX_PAGE))], asked)


def words_of(page: bytes) -> str:
    import trafilatura

    text = trafilatura.extract(page, include_comments=False, favor_recall=True)
    text = text or trafilatura.html2txt(page)
    if not (text and text.strip()):
        raise NoText("it is HTML without words")
    return text


def read_epub(file: File, asked: Asked) -> Found:
    """Yield the chapters of an EPUB in the order in which they are read."""
    yield Kind("EPUB", is_cut=True)
    with file.open() as stream, zipfile.ZipFile(stream) as book:
        for name in spine(book):
            info = book.getinfo(name)
            if info.file_size > MAX_PAGE:
                raise Unreadable(f"{name} in it is larger than {MAX_PAGE:,} bytes")
            if text := chapter(book.read(info)):
                yield from cut_up([text], asked)


def spine(book: zipfile.ZipFile) -> Iterator[str]:
    """Yield the names of the chapters' files (EPUB 3.3, sections 4.2.6.3 and 5.7)."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
    try:
        container = etree.fromstring(book.read(CONTAINER), parser)
        package_name = container.find(".//{*}rootfile").get("full-path")
        package = etree.fromstring(book.read(package_name), parser)
        items = {item.get("id"): item.get("href") for item in package.iterfind(".//{*}item")}
        for ref in package.iterfind(".//{*}itemref"):
            yield posixpath.normpath(
                posixpath.join(posixpath.dirname(package_name), items[ref.get("idref")])
            )
    except (KeyError, AttributeError, TypeError, etree.XMLSyntaxError) as error:
        raise Unreadable(f"it is a damaged EPUB ({type(error).__name__}: {error})") from None


def chapter(page: bytes) -> str:
    """Return the words of a chapter, a paragraph on each line."""
    from lxml import html

    body = html.fromstring(page).find(".//body")
    if body is None:
        return ""
    blocks = body.xpath(".//p|.//h1|.//h2|.//h3|.//h4|.//li|.//blockquote[not(.//p)]|.//td|.//pre")
    texts = (" ".join(block.text_content().split()) for block in blocks)
    return "\n\n".join(text for text in texts if text)


def read_pdf(file: File, asked: Asked) -> Found:
    """Yield the pages' text of a PDF as one text."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what matters is raised, too
    try:
        with file.open() as stream:
            reader = PdfReader(io.BytesIO(stream.read()))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it is a PDF with a password: save it without one")
        pages = [page.extract_text() or "" for page in reader.pages]
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"it is a damaged PDF ({type(error).__name__}: {error})") from None
    pages, n_titles = without_titles(pages)
    text = reflowed("\n".join(pages))
    kind = f"PDF of {len(pages)} page{'s' * (len(pages) != 1)}"
    if not text.strip():
        raise Unreadable(f"it is a {kind} without text: a scan needs OCR first")
    kind += f" without {n_titles:,} lines that recur above or below them" if n_titles else ""
    yield Kind(kind, is_cut=True)
    yield from cut_up([text], asked)


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
    """Join the lines of each paragraph, and the halves of words that were divided."""
    paragraphs = re.split(r"\n\s*\n", text)
    joined = (re.sub(r"(\w)-\n(?=[a-zß-ÿ])", r"\1", paragraph) for paragraph in paragraphs)
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in joined if paragraph.strip())
