"""The words of HTML, EPUB and Word, each once, and what is said of damaged files."""

import zipfile
from pathlib import Path
from urllib.parse import unquote

import pytest
from texts import documents, told, write, zipped

from gptcore.checks import UserError
from training.formats.documents import books


def test_a_web_page_is_read_without_its_menu_and_scripts(tmp_path: Path) -> None:
    page = """<!DOCTYPE html><html><head><title>Bread</title><script>var x = 1;</script></head>
    <body><nav><a href="/">Home</a><a href="/shop">Shop</a></nav><article><h1>Bread</h1>
    <p>Flour and water are mixed, and left to rest for an hour before anything else is done.</p>
    <p>Then the salt is added, and the dough is folded four times in the course of two hours.</p>
    </article><footer>Imprint</footer></body></html>"""
    (text,) = documents(write(tmp_path / "saved.txt", page))
    assert isinstance(text, str)
    assert "Flour and water" in text and "folded four times" in text
    assert not any(word in text for word in ("var x", "Shop", "<p>"))


def test_lines_of_a_web_page_are_those_that_a_browser_shows(tmp_path: Path) -> None:
    """What indents the source is no word, nor is a sign that leads to a heading."""
    page = """<!DOCTYPE html><html><body>
\t<h1>Bread<a class="headerlink" href="#bread">¶</a></h1>
\t<div class="para">
\t\tFlour and water are mixed, and left to rest for an hour
\t\tbefore anything else is done, as <i>everybody</i>
\t\t<b>knows</b>.
\t</div><div class="para">
\t\tThen the dough is baked, and it is timed by a program such as this one:
\t</div>
<pre>while dough:
    wait()
</pre></body></html>"""
    (text,) = documents(write(tmp_path / "page.html", page))
    assert isinstance(text, str)
    assert not any(sign in text for sign in ("\t", " \n", "¶"))
    assert "an hour before anything else is done, as everybody knows.\nThen the dough" in text
    assert "while dough:\n    wait()" in text


def test_a_control_character_is_no_word_of_a_web_page(tmp_path: Path) -> None:
    page = "<html><body><p>The fox&#1; lives in the &#xFFFF;wood, which is deep.</p></body></html>"
    text = "The fox lives in the wood, which is deep."
    assert documents(write(tmp_path / "page.html", page)) == [text]


PAGE = (
    '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body>{}</body></html>'
)


def epub(pages: dict[str, str | bytes], **more: str) -> bytes:
    """A book of pages by their hrefs; `more`: other files, by names in META-INF."""
    container = '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    container += '<rootfile full-path="OEBPS/content.opf"/></rootfiles></container>'
    items = "".join(f'<item id="i{i}" href="{href}"/>' for i, href in enumerate(pages))
    refs = "".join(f'<itemref idref="i{i}"/>' for i in range(len(pages)))
    package = '<package xmlns="http://www.idpf.org/2007/opf">{}</package>'
    head = f"<manifest>{items}</manifest><spine>{refs}</spine>"
    members = {"mimetype": "application/epub+zip", "META-INF/container.xml": container}
    members |= {f"META-INF/{name}.xml": text for name, text in more.items()}
    members |= {"OEBPS/content.opf": package.format(head)}
    for href, page in pages.items():
        if page:
            text = page if isinstance(page, bytes) else PAGE.format(page)
            members[f"OEBPS/{unquote(href).partition('#')[0]}"] = text
    return zipped(members, zipfile.ZIP_STORED)


def test_a_book_is_read_in_the_order_of_its_spine(tmp_path: Path) -> None:
    pages = {
        "text/2.xhtml": "<h1>One</h1><p>First\nof all.</p>",
        "text/1.xhtml": "<p>Second <i>chapter</i>.</p>",
    }
    assert documents(write(tmp_path / "book", epub(pages))) == [
        "One\n\nFirst of all.",
        "Second chapter.",
    ]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<ul><li><p>One item.</p></li><li>Two<ul><li>and a half</li></ul></li></ul>",
         "One item.\n\nTwo\n\nand a half"),
        ("<table><tr><td><p>Cell</p></td><td>by cell</td></tr></table>", "Cell\n\nby cell"),
        ("<div><div>A paragraph.</div><div>Another <b>one</b>.</div></div>",
         "A paragraph.\n\nAnother one."),
        ("Bare words <p>in a paragraph</p> and after it.",
         "Bare words\n\nin a paragraph\n\nand after it."),
        ("<p>Two\x0c fine&#1; days<br/>\x0bof a <i>\ufffeyear</i>.</p>",
         "Two fine days\nof a year."),
        ("<p>A line,<br/>and its rhyme</p><script>var x = 1</script>", "A line,\nand its rhyme"),
    ],
)  # fmt: skip
def test_every_word_of_a_chapter_is_read_once(tmp_path: Path, body: str, text: str) -> None:
    assert documents(write(tmp_path / "book", epub({"1.xhtml": body}))) == [text]


@pytest.mark.parametrize(
    "page",
    [
        "<html><body><p>Grüße</p></body></html>".encode(),
        "<html><body><p>Grüße</p></body></html>".encode("utf-16"),
        '<?xml version="1.0" encoding="iso-8859-1"?><body>Grüße</body>'.encode("latin-1"),
        '<html><head><meta charset="windows-1252"/></head><body>Grüße</body></html>'.encode(
            "cp1252"
        ),
    ],
)
def test_a_chapter_is_in_utf_8_unless_it_says_another_encoding(tmp_path: Path, page: bytes) -> None:
    assert documents(write(tmp_path / "book", epub({"1.xhtml": page}))) == ["Grüße"]


def test_a_chapter_that_cannot_be_read_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    pages = {
        "Chapter%201.xhtml#start": "<p>Named with a blank.</p>",
        "missing.xhtml": "",
        "empty.xhtml": b" ",
        "locked.xhtml": b"\x93\x01\x7f",
        "odd.xhtml": b'<?xml version="1.0" encoding="klingon"?><body>Qapla</body>',
    }
    lock = '<encryption><CipherReference URI="OEBPS/locked.xhtml"/></encryption>'
    path = write(tmp_path / "book", epub(pages, encryption=lock))
    assert documents(path) == ["Named with a blank."]
    said = told(path)
    assert "it is a chapter that the book names and does not hold (first: OEBPS/missing.xht" in said
    assert "cannot be read (Document is empty) (first: OEBPS/empty.xhtml)" in said
    assert "locked by the shop (DRM): use a book without a lock (first: OEBPS/locked.xhtml)" in said
    assert "klingon" in said


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def docx(body: str, part: str = "document.xml", notes: str = "") -> bytes:
    """A Word document with this body (ECMA-376, part 1, section 17)."""
    links = f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="1" {{}}/>'
    links += "</Relationships>"
    parts = {
        "_rels/.rels": links.format(f'Type="{OFFICE}/officeDocument" Target="word/{part}"'),
        f"word/_rels/{part}.rels": links.format(f'Type="{OFFICE}/footnotes" Target="notes.xml"'),
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
        "word/styles.xml": f'<w:styles xmlns:w="{WORD}"><w:style w:type="paragraph" w:styleId="T1">'
        '<w:name w:val="toc 1"/></w:style></w:styles>',
        "word/notes.xml": f'<w:footnotes xmlns:w="{WORD}">{notes}</w:footnotes>',
        f"word/{part}": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
    }  # fmt: skip
    return zipped(parts)


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


@pytest.mark.parametrize("part", ["document.xml", "document2.xml"])  # as Word on the web names it
def test_a_word_document_is_read_as_its_author_last_left_it(tmp_path: Path, part: str) -> None:
    contents = f'<w:p><w:pPr><w:pStyle w:val="T1"/></w:pPr>{run("Hours 1")}</w:p>'
    removed = "<w:del><w:r><w:delText>GONE</w:delText></w:r></w:del>"
    note = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    cells = "".join(f"<w:tc><w:p>{run(word)}</w:p></w:tc>" for word in ("Sunday", "closed"))
    body = (
        f"{contents}<w:p>{run('Open at nine')}{note}{removed}<w:ins>{run(' daily.')}</w:ins></w:p>"
        f"<w:p>{run('A line')}<w:r><w:br/></w:r>{run('and a &lt;rhyme&gt;')}</w:p>"
        f"<w:sdt><w:sdtContent><w:p>{run('Filled in')}</w:p></w:sdtContent></w:sdt>"
        f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"
    )
    notes = f'<w:footnote w:id="2"><w:p>{run("Or at ten.")}</w:p></w:footnote>'
    path = write(tmp_path / "hours.docx", docx(body, part, notes))
    assert documents(path) == [
        "Open at nine daily.\n\nA line\nand a <rhyme>\n\nFilled in\n\nSunday\n\nclosed\n\n"
        "Or at ten."
    ]
    assert "hours.docx: Word, 1 text" in told(path)
    assert documents(write(tmp_path / "letters.zip", zipped({"a.docx": path.read_bytes()})))


def test_a_word_document_of_pictures_alone_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it is a Word document without words: leave it out"):
        documents(write(tmp_path / "scan.docx", docx("<w:p/>")))


@pytest.mark.parametrize("kind", ["book", "archive", "LZMA"])
def test_whatever_byte_of_an_archive_is_wrong_is_said(tmp_path: Path, kind: str) -> None:
    good = {
        "book": epub({"1.xhtml": "<p>One</p>"}),
        "archive": zipped({"a.txt": b"One"}),
        "LZMA": zipped({"a.txt": b"One"}, zipfile.ZIP_LZMA),
    }[kind]
    for at in range(len(good)):
        bad = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        path = write(tmp_path / "file", bad)
        try:
            assert documents(path) == ["One"]  # the byte is none of what is read
        except UserError as error:
            assert str(error).startswith((f"{path}: ", "no document was found"))


def test_a_page_that_is_too_long_is_refused_and_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "<html><body><p>Flour and water are mixed, and left to rest.</p></body></html>"
    monkeypatch.setattr(books, "MAX_PAGE", len(page))
    assert documents(write(tmp_path / "a.html", page))
    with pytest.raises(UserError, match="it is a page of more than 77 bytes: divide it"):
        documents(write(tmp_path / "a.html", page + " "))
