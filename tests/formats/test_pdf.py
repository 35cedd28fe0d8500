"""PDFs: the words of the pages in their paragraphs, and what is said of damaged ones."""

from pathlib import Path

import pytest
from texts import documents, told, write

from gptcore.checks import UserError
from training.formats.documents.pdf import Line, reflowed, without_titles


def pdf(words: str) -> bytes:
    """A PDF of one page, written by hand (ISO 32000-1, 7.5)."""
    page = f"BT /F1 12 Tf 72 720 Td ({words}) Tj ET" if words else ""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
        " /Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(page)} >>\nstream\n{page}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    data, offsets = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    end = f"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return f"{data}xref\n0 6\n0000000000 65535 f \n{table}{end}".encode("latin-1")


def test_a_pdf_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", pdf("Once upon a time."))
    assert documents(path) == ["Once upon a time."]
    assert "PDF of 1 page, 1 text" in told(path)


def test_a_damaged_page_of_a_pdf_is_skipped_and_the_others_are_read(tmp_path: Path) -> None:
    good = pdf("Once upon a time.")
    of_two = good.replace(b"/Kids [3 0 R] /Count 1", b"/Kids [3 0 R 9 0 R] /Count 2")  # 9 is none
    path = write(tmp_path / "a.pdf", of_two)
    assert documents(path) == ["Once upon a time."]
    assert "skipped 1: it is a damaged page (PdfiumError: Failed to load page.)" in told(path)
    assert "(first: page 2)" in told(path)
    with pytest.raises(UserError, match=r"b.pdf: it is a damaged page"):
        documents(write(tmp_path / "b.pdf", good.replace(b"/Kids [3", b"/Kids [9")))


def test_words_are_told_apart_by_their_places_and_divided_ones_joined(tmp_path: Path) -> None:
    """As LaTeX writes a line: no spaces, each word is moved to its place."""
    line = "Two) Tj 28 0 Td (words) Tj 40 0 Td (and a di-) Tj -68 -14 Td (vided one."
    assert documents(write(tmp_path / "a.pdf", pdf(line))) == ["Two words and a divided one."]


def test_words_divided_with_the_hyphen_of_browsers_are_joined(tmp_path: Path) -> None:
    """WeasyPrint and CSS's `hyphens: auto` write U+2010, which PDFium leaves where it is."""
    line = "For spe-) Tj 0 -14 Td (cial E-) Tj 0 -14 Td (Bikes."
    with_u2010 = pdf(line).replace(
        b"/Helvetica >>", b"/Helvetica /Encoding << /Differences [45 /hyphentwo] >> >>"
    )
    text = "For special E-Bikes."
    assert documents(write(tmp_path / "a.pdf", with_u2010)) == [text]
    assert documents(write(tmp_path / "b.pdf", pdf(line))) == [text]


def test_halves_of_words_are_joined_in_every_alphabet() -> None:
    assert reflowed("сло-\nво, čer-\nšvy, λέ-\nξη, E-\nBike, in-\n2") == (
        "слово, čeršvy, λέξη, E-Bike, in-2"
    )


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-128", "AES-256"])
def test_an_encrypted_pdf_that_needs_no_password_is_read(tmp_path: Path, algorithm: str) -> None:
    from pypdf import PdfReader, PdfWriter

    path = write(tmp_path / "a.pdf", pdf("Once upon a time."))
    writer = PdfWriter(PdfReader(path))
    writer.encrypt("", "of the owner", algorithm=algorithm)
    writer.write(path)
    assert documents(path) == ["Once upon a time."]


def laid_out(*lines: tuple[float, float, str]) -> bytes:
    """A PDF of one page with lines at these places, in points from the lower left."""
    return pdf(") Tj ".join(["", *(f"1 0 0 1 {x} {y} Tm ({text}" for x, y, text in lines)]))


def test_lines_that_wrap_are_joined_and_others_end(tmp_path: Path) -> None:
    lines = (
        "Most lines of this page go on to its margin at the right, where they",
        "are wrapped. This one ends earlier.",
        "Then another paragraph begins. It has no gap above it, but the line",
        "before had room.",
        "\\267 One thing of a list, which has so many words that it needs a line",
        "and a half.",
        "\\267 Another one.",
    )
    shown = [(72, 720 - 14 * i, line) for i, line in enumerate(lines)]
    after_a_gap = (72, 600, "The next paragraph has a gap above it.")
    assert documents(write(tmp_path / "a.pdf", laid_out(*shown, after_a_gap))) == [
        "Most lines of this page go on to its margin at the right, where they are wrapped. "
        "This one ends earlier.\n"
        "Then another paragraph begins. It has no gap above it, but the line before had room.\n"
        "• One thing of a list, which has so many words that it needs a line and a half.\n"
        "• Another one.\n\nThe next paragraph has a gap above it."
    ]


def test_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    title = (72, 740, "A title that is as wide as both of the columns and the gap between them")
    words = "This column is narrow and|its lines wrap long before|the page ends."
    columns = [
        (x, 720 - 14 * i, line) for x in (72, 330) for i, line in enumerate(words.split("|"))
    ]
    text = "This column is narrow and its lines wrap long before the page ends."
    assert documents(write(tmp_path / "a.pdf", laid_out(title, *columns))) == [
        f"{title[2]}\n\n{text}\n{text}"
    ]


def test_lines_of_chinese_and_japanese_are_joined_without_a_space() -> None:
    assert (
        reflowed("下記の項を参\n照下さい。\nApt(8) は\nくに")
        == "下記の項を参照下さい。 Apt(8) はくに"
    )
    assert reflowed("한국어는\n띄어 쓴다.") == "한국어는 띄어 쓴다."


def test_letters_that_older_fonts_of_latex_write_in_one_are_read(tmp_path: Path) -> None:
    page = pdf("di\\033erent, \\034rst, \\035at, su\\036cient, ba\\037e")
    path = write(tmp_path / "a.pdf", page)
    assert documents(path) == ["different, first, flat, sufficient, baffle"]


def page_of(*texts: str) -> list[Line]:
    return [Line(text, 0, 0, 0, 0, 0) for text in texts]


def test_running_titles_and_page_numbers_are_left_out() -> None:
    words = ("Salt is", "added to", "the dough", "at last.")
    pages = [
        page_of(f"On Bread {i}", text, f"Chapter {i % 2}: One", f"{i}")
        for i, text in enumerate(words)
    ]
    assert without_titles(pages) == ([page_of(text) for text in words], 12)
    assert without_titles([page_of("One", "Two")] * 2)[1] == 0, "two pages may be alike"


def test_titles_that_differ_on_the_left_and_on_the_right_are_left_out() -> None:
    names = ("Salt", "Oven", "Dough", "Yeast", "Rye", "Corn", "Oats")
    words = [(f"{name} one", f"{name} two") for name in names]
    titles = ["E. Halvorsen", "The Lights"]
    pages = [page_of(titles[i % 2], *text, text[0][::-1]) for i, text in enumerate(words)]
    assert without_titles(pages)[1] == 7
    assert without_titles(pages[:4])[1] == 0, "too few to tell"


def test_titles_that_change_are_known_by_the_number_of_their_page() -> None:
    """LaTeX writes the section at the left and the chapter at the right."""
    words = ("Salt is", "added to 12", "the dough", "at last.")
    titles = ("1.1. Salt 7", "8 Chapter 1. Dough", "1.2. Water 9", "10 Chapter 2. Oven")
    pages = [page_of(text, text[::-1], title) for text, title in zip(words, titles)]
    assert without_titles(pages) == ([page_of(text, text[::-1]) for text in words], 4)
