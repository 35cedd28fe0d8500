"""Web pages, EPUBs and Word documents to texts, through the readers of others."""

import posixpath
import re
import zipfile
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote, urldefrag
from xml.parsers.expat import ExpatError

from training.formats.documents.questions import documents_in
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
# What mammoth makes of a note: a number in brackets in the text, and below it an arrow back to it.
NOTE_LINKS = re.compile(
    r' ?(?:<sup>)?<a href="#(?:foot|end)note-(?:ref-)?\d+"[^>]*>[^<]*</a>(?:</sup>)?'
)
NO_CONTENTS = "p[style-name^='toc '] => !\np[style-name^='contents '] => !"  # mammoth's style map
LOCKS = "META-INF/encryption.xml"  # what is encrypted in an EPUB: chapters, or fonts alone
BLOCKS = """
address article aside blockquote caption center dd div dl dt figcaption figure footer h1 h2 h3 h4
h5 h6 header hr li main nav ol p pre section table td th tr ul
"""


def read_html(file: File, asked: Asked) -> Found:
    """Yield the text of a web page, without its menus and scripts."""
    with file.open() as stream:
        page = stream.read(MAX_PAGE + 1)
    if len(page) > MAX_PAGE:
        raise Unreadable(f"it is a page of more than {MAX_PAGE:,} bytes: divide it")
    for sign, what in EXPORTED.items():
        if sign in page:
            raise Unreadable(f"it is an export {what} as HTML: export it as JSON")
    yield from documents_in("HTML, its text without menus and scripts", words_of(page), asked)


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


def read_word(file: File, asked: Asked) -> Found:
    """Yield the text of a Word document as its author last left it, with its notes at the end."""
    import mammoth

    with seekable(file) as stream:
        try:
            html = mammoth.convert_to_html(
                stream, convert_image=lambda image: [], style_map=NO_CONTENTS
            ).value
        except (AttributeError, ExpatError, LookupError, RuntimeError, TypeError, ValueError) as e:
            raise damaged("Word document", e) from None
    text = chapter(f"<body>{NOTE_LINKS.sub('', html)}</body>".encode())
    if not text:
        raise NoText("it is a Word document without words")
    yield from documents_in("Word", text, asked)


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
