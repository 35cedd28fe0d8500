"""Texts that are not UTF-8, as Excel and older systems write them."""

import random
from pathlib import Path

import pytest
from texts import documents, told

from gptcore.checks import UserError

# An answer of a shop in each language, and the encodings that its files come in.
ANSWERS = {
    "Wir öffnen täglich um neun, außer an Feiertagen. Schöne Grüße!": ["cp1252", "latin-1"],
    "Nous sommes ouverts à neuf heures, sauf l’été. Très cordialement, Zoé": ["cp1252"],
    "Abrimos a las nueve, mañana también. ¿Dónde está el niño? ¡Adiós!": ["cp1252"],
    "Abrimos às nove, amanhã não. Até lá, um abraço do João.": ["cp1252"],
    "Vi öppnar klockan nio, även på söndagar. Hälsningar från Åsa": ["cp1252"],
    "Otwieramy o dziewiątej, także jutro. Proszę zadzwonić później. Źródło": ["cp1250"],
    "Otevíráme v devět, příště také. Děkujeme a těšíme se na vás.": ["cp1250"],
    "Мы открываемся в девять часов. Спасибо за вопрос!": ["cp1251", "koi8-r"],
    "Ανοίγουμε στις εννέα. Ευχαριστούμε πολύ για την ερώτηση!": ["cp1253"],
    "Dokuzda açıyoruz, yarın da öyle. Görüşmek üzere, iyi günler dileğiyle!": ["cp1254"],
    "我们九点开门,明天也是。谢谢您的问题,再见!": ["gb18030"],
    "我們九點開門,明天也是。謝謝您的問題,再見!": ["big5"],
    "九時に開きます。ご質問ありがとうございました。": ["cp932", "euc-jp"],
    "아홉 시에 문을 엽니다. 질문해 주셔서 감사합니다.": ["cp949"],
}


@pytest.mark.parametrize(
    ("answer", "encoding"), [(a, encoding) for a, all_ in ANSWERS.items() for encoding in all_]
)
def test_a_table_is_read_in_the_encoding_that_it_has(
    answer: str, encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "faq.csv"
    path.write_bytes(f"question;answer\nWhen?;{answer}\nAnd then?;{answer}\n".encode(encoding))
    assert [chat[-1]["content"] for chat in documents(path)] == [answer, answer]
    assert "read as " in told(path)


def test_the_first_letter_beyond_ascii_may_come_late(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    row = "When do you open?;At nine, as on all other days.\n"
    rows = "question;answer\n" + row * 40_000 + "Wann?;Täglich um neun. Schöne Grüße!\n"
    path.write_bytes(rows.encode("cp1252"))  # it is 2 MB
    *_, last = documents(path)
    assert last[-1]["content"] == "Täglich um neun. Schöne Grüße!"


@pytest.mark.parametrize(
    "content",
    [
        "Grüße aus Köln, schöne Straßen. ".encode() * 9 + b"\xff",
        "我们九点开门，明天也是。".encode() * 9 + "é".encode("latin-1"),
        bytes(random.Random(7).choices(range(1, 256), k=2000)),
    ],
    ids=["damaged UTF-8", "damaged Chinese", "no text"],
)
def test_what_would_be_nonsense_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"text\.txt: line \d+ is not UTF-8 text: save it as UTF-8"):
        documents(path)


@pytest.mark.parametrize("word", ["BMW", "MZ-Räder", "ID3-Zeichen", "RIFF"])
def test_a_text_may_begin_as_pictures_and_programs_do(word: str, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(f"{word} über alle Straßen, schöne Grüße.".encode("cp1252"))
    assert documents(path)


def test_what_only_begins_in_an_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("Schöne Grüße aus Köln. ".encode("cp1252") * 3000 + b"\x81")
    with pytest.raises(UserError, match=r"it begins as Windows-1252 and goes on as something else"):
        documents(path)
