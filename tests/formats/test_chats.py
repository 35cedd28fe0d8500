"""Chats that people export: who says what to whom, and where one conversation ends."""

from datetime import datetime
from pathlib import Path
from time import process_time

import pytest
from texts import documents, told, write, zipped

from gptcore.checks import UserError
from gptcore.text.chat_template import messages_of
from training.formats.places import find_files
from training.look.look import look

WHATSAPP = """\
[03.05.21, 14:00:11] Ann: \u200eMessages and calls are end-to-end encrypted.
[03.05.21, 14:02:11] Ann: Are you there?
[03.05.21, 14:02:30] Ann: Hello?
[03.05.21, 14:03:00] Ben: Yes: here

and waiting
\u200e[03.05.21, 14:04:00] Ben: \u200eimage omitted
[04.05.21, 09:00:00] Ben: Morning!
[04.05.21, 09:01:00] Ann: Morning. \u200e<This message was edited>
[04.05.21, 09:02:00] Ben: Coffee?
"""
ANDROID = """\
5/3/21, 1:58 PM - Messages and calls are end-to-end encrypted. Tap to learn more.
5/3/21, 2:02\u202fPM - Ann: Are you there?
5/3/21, 2:02\u202fPM - Ann: Hello?
5/3/21, 2:03\u202fPM - Ben: \u200eIMG-1.jpg (file attached)
Yes: here

and waiting
5/3/21, 2:04\u202fPM - Ben: <Mídia oculta>
5/4/21, 9:00\u202fAM - Ben: Morning!
5/4/21, 9:01\u202fAM - Ann: Morning. <This message was edited>
5/4/21, 9:02\u202fAM - Ben: Coffee?
"""


@pytest.mark.parametrize(
    "notice",
    [
        "Diese Nachricht wurde gelöscht.",
        "Eliminaste este mensaje",
        "This message was deleted by admin Ann",
        "Missed video call",
        "live location shared",
        "Waiting for this message. This may take a while.",
        "Standort: https://maps.google.com/?q=40.1,-73.9",
        "POLL:\nWhen?\nOPTION: Sunday (2 votes)\nOPTION: Never (0 votes)\n",
        "UMFRAGE:\nWann?\nNun?\nOPTION: Heute (1 Stimme)\nOPTION: Nie (0 Stimmen)",
    ],
)
def test_what_android_has_in_place_of_words_is_not_learned(tmp_path: Path, notice: str) -> None:
    export = ANDROID.replace("<Mídia oculta>", notice)
    path = write(tmp_path / "chat.txt", export)
    assert documents(path, me=("Ben",))[0][-1]["content"] == "Yes: here\n\nand waiting"
    quoted = write(tmp_path / "quoted.txt", export.replace(notice, f"It says: {notice}"))
    said = documents(quoted, me=("Ben",))[0][-1]["content"]
    assert said.endswith(notice.strip()), "somebody's own words"


@pytest.mark.parametrize(
    "words",
    ["Places:\nNice: pretty\nRome: old", "null and void", "Null", "<3 you", 'Use <a class="b">'],
)
def test_words_that_look_nearly_like_a_notice_are_learned(tmp_path: Path, words: str) -> None:
    path = write(tmp_path / "chat.txt", ANDROID.replace("<Mídia oculta>", words))
    assert documents(path, me=("Ben",))[0][-1]["content"].endswith(f"waiting\n{words}")


@pytest.mark.parametrize(
    "mark", ["<Se editó este mensaje.>", "<Ce message a été modifié>", "<Mesaj düzenlendi.>"]
)
def test_the_mark_of_an_edited_message_is_left_out(tmp_path: Path, mark: str) -> None:
    path = write(tmp_path / "chat.txt", ANDROID.replace("<This message was edited>", mark))
    assert documents(path, me=("Ben",))[1][0]["content"] == "Morning."


def test_a_file_is_known_by_its_name_where_its_mark_was_lost(tmp_path: Path) -> None:
    said = "IMG-20240912-WA0003.jpg (Datei angehängt)"
    path = write(tmp_path / "chat.txt", ANDROID.replace("<Mídia oculta>", f"{said}\nLook!"))
    assert documents(path, me=("Ben",))[0][-1]["content"].endswith("waiting\nLook!")
    path = write(tmp_path / "alone.txt", ANDROID.replace("<Mídia oculta>", said))
    assert documents(path, me=("Ben",))[0][-1]["content"] == "Yes: here\n\nand waiting"


def test_a_caption_is_learned_and_no_mark_of_a_direction(tmp_path: Path) -> None:
    said = "<Mídia oculta>\nLook, @\u2068Ann\u2069!"
    path = write(tmp_path / "chat.txt", ANDROID.replace("<Mídia oculta>", said))
    assert documents(path, me=("Ben",))[0][-1]["content"].endswith("waiting\nLook, @Ann!")


@pytest.mark.parametrize(
    "notice",
    [
        'Ben changed the group name from "A: B" to "C: D"',
        "Ben hat den Gruppennamen zu „Rad: Tour“ geändert",
        "Ann changed to a new number. Tap to message: or add",
    ],
)
def test_a_notice_with_a_colon_is_nobodys_message(tmp_path: Path, notice: str) -> None:
    export = ANDROID.replace("Ben: ", "Dr. Ben: ")
    path = write(tmp_path / "chat.txt", f"{export}5/4/21, 9:03\u202fAM - {notice}\n")
    alone = write(tmp_path / "alone.txt", export)
    assert documents(path, me=("Dr. Ben",)) == documents(alone, me=("Dr. Ben",))
    assert "WhatsApp chat of Ann (3 messages), Dr. Ben (3 messages)," in told(path, me=("Ann",))


@pytest.mark.parametrize(
    "written",
    [
        "plan.pdf • \u200e3 Seiten \u200eDokument weggelassen",
        "Max.vcf \u200eKontaktkarte weggelassen",
        "\u200eUMFRAGE:\nWann?\n\u200eOPTION: Heute (1 Stimme)\n\u200eOPTION: Nie (0 Stimmen)",
    ],
)
def test_what_an_iphone_has_in_place_of_a_file_or_a_poll_is_not_learned(
    tmp_path: Path, written: str
) -> None:
    export = WHATSAPP.replace("\u200eimage omitted", written)
    assert written in export
    path = write(tmp_path / "chat.txt", export)
    assert documents(path, me=("Ben",)) == documents(
        write(tmp_path / "plain.txt", WHATSAPP), me=("Ben",)
    )
    # A keyboard for several scripts leaves marks, too.
    for end in ("\u200e<Diese Nachricht wurde bearbeitet>", "\u200e"):
        mine = WHATSAPP.replace("Coffee?", f"See plan.pdf {end}")
        path = write(tmp_path / "mine.txt", mine)
        assert documents(path, me=("Ben",))[-1][-1]["content"] == "See plan.pdf"


def test_of_three_people_none_is_left_out_of_the_choice(tmp_path: Path) -> None:
    lines = [f"01.02.24, 10:0{i} - {'ABCB'[i % 4]}nn: Hi {i}\n" for i in range(8)]
    with pytest.raises(UserError) as refusal:
        documents(write(tmp_path / "chat.txt", "".join(lines)))
    people = "Bnn (4 messages), Ann (2 messages), Cnn (2 messages)"
    choice = f'{people}: name the one whose words are learned, such as --me "Bnn"; if'
    assert choice in str(refusal.value) and str(refusal.value).count("--me") == 1
    many = [f"01.02.24, 10:{i:02} - {'ABCDEFGHIJ'[i % 10]}nn: Hi {i}\n" for i in range(20)]
    with pytest.raises(UserError, match=r"Hnn \(2 messages\) and 2 more: name the one whose"):
        documents(write(tmp_path / "chat.txt", "".join(many)))


@pytest.mark.parametrize("export", [WHATSAPP, ANDROID], ids=["iPhone", "Android"])
def test_a_whatsapp_export_teaches_the_words_of_one_person(tmp_path: Path, export: str) -> None:
    path = write(tmp_path / "_chat.txt", export)
    with pytest.raises(UserError, match=r"Ben \(3 messages\).*--me \"Ann\""):
        documents(path)
    with pytest.raises(UserError, match=r"--me \"Cleo\" is not in this WhatsApp chat: it has"):
        documents(path, me=("Cleo",))
    with pytest.raises(UserError, match=r"\"Cleo\" or --me \"Dan\" is not .*--me takes a second"):
        documents(path, me=("Cleo", "Dan"))
    assert documents(path, me=("Cleo", "Ben")) == documents(path, me=("Ben",))
    for part_or_misspelt in ("ben", "en", "Benn"):
        with pytest.raises(UserError, match=r"did you mean --me \"Ben\"\? it has"):
            documents(path, me=(part_or_misspelt,))
    assert documents(path, me=("Ben",)) == [
        messages_of(["Are you there?\nHello?", "Yes: here\n\nand waiting"]),
        messages_of(["Morning.", "Coffee?"]),
    ]
    assert "skipped 2: a picture, a sound, a deleted message or a notice" in told(path, me=("Ben",))


@pytest.mark.parametrize(
    "form",
    [
        "{:%d.%m.%y, %H:%M} - ",
        "[{:%d.%m.%y, %H:%M:%S}] ",
        "{:%-m/%-d/%y, %-I:%M %p} - ",
        "[{:%-m/%-d/%y, %-I:%M:%S\u202f%p}] ",
        "{:%Y-%m-%d, %H:%M} - ",
        "[{:%Y-%m-%d, %H:%M:%S}] ",
        "{:%Y/%m/%d, %H:%M} - ",
        "{:%-d/%-m/%Y, %-I:%M} XM - ",  # Spanish
        "{:%d/%m/%Y à %H:%M} - ",  # French
        "{:%-d.%-m.%Y klo %-H.%M} - ",  # Finnish
        "{:%Y. %m. %d. %-H:%M} - ",  # Hungarian
        "{:%-d/%-m/%Y, %-I:%M %p} - ",
    ],
)
def test_a_talk_past_midnight_is_one_whatever_the_dates_look_like(
    tmp_path: Path, form: str
) -> None:
    times = (datetime(2021, 5, 3, 23, 59), datetime(2021, 5, 4, 0, 1), datetime(2021, 5, 4, 23))
    lines = []
    for at in times:
        line = form.format(at).replace("XM", ("a.\xa0m.", "p.\xa0m.")[at.hour >= 12])
        lines += [f"{line}{name}: Hi" for name in ("Ann", "Ben")]
    found = documents(write(tmp_path / "_chat.txt", "\n".join(lines)), me=("Ben",))
    assert [len(chat) for chat in found] == [4, 2]


@pytest.mark.parametrize("n_lines", [45, 60])
@pytest.mark.parametrize("above", ["", "a title\n"])
def test_a_chat_is_known_though_its_first_message_is_long(
    tmp_path: Path, above: str, n_lines: int
) -> None:
    verse = "\n".join(f"line {i}" for i in range(n_lines))
    chat = f"{above}03.05.21, 14:02 - Ann: {verse}\n03.05.21, 14:03 - Ben: Fine.\n"
    [[_, reply]] = documents(write(tmp_path / "_chat.txt", chat), me=("Ben",))
    assert reply == {"role": "assistant", "content": "Fine."}


@pytest.mark.parametrize(
    "times",
    [
        ("2021/5/3 上午11:00 - ", "2021/5/3 下午1:00 - ", "2021/5/3 下午11:00 - "),
        ("[2021/5/3 上午11:00:01] ", "[2021/5/3 下午1:00:01] ", "[2021/5/3 下午11:00:01] "),
        ("2021. 5. 3. 오전 11:00 - ", "2021. 5. 3. 오후 1:00 - ", "2021. 5. 3. 오후 11:00 - "),
        ("3/5/2021, 11:00 ص - ", "3/5/2021, 1:00 م - ", "3/5/2021, 11:00 م - "),
        (
            "٣\u200f/٥\u200f/٢٠٢١، ١١:٠٠ ص - ",
            "٣\u200f/٥\u200f/٢٠٢١، ١:٠٠ م - ",
            "٣\u200f/٥\u200f/٢٠٢١، ١١:٠٠ م - ",
        ),
        (
            "\u200f[٣\u200f/٥\u200f/٢٠٢١, ١١:٠٠:٠١ ص] ",
            "[٣\u200f/٥\u200f/٢٠٢١, ١:٠٠:٠١ م] ",
            "[\u200f٣\u200f/٥\u200f/٢٠٢١, ١١:٠٠:٠١ م] ",
        ),
        ("3/5/21, 11:00 π.μ. - ", "3/5/21, 1:00 μ.μ. - ", "3/5/21, 11:00 μ.μ. - "),
    ],
)
def test_the_halves_of_the_day_are_known_in_other_languages(
    tmp_path: Path, times: tuple[str, str, str]
) -> None:
    lines = [f"{at}{name}: Hi" for at in times for name in ("Ann", "Ben")]
    found = documents(write(tmp_path / "_chat.txt", "\n".join(lines)), me=("Ben",))
    assert [len(chat) for chat in found] == [4, 2]


LINE = """\
[LINE] Chat history with Ann
Saved on: 2021/05/04 19:57

2021/05/03(Mon)
14:01\tAnn joined the chat
14:02\tAnn\tAre you there?
14:02\tAnn\t[Sticker]
14:03\tBen\t"Yes: here
and waiting"

2021/05/04(Tue)
09:01\tAnn\tMorning.
09:02\tBen\tCoffee?
"""
KAKAOTALK = """\
Ann 님과 카카오톡 대화
저장한 날짜 : 2021-05-04 19:57:03

--------------- 2021년 5월 3일 월요일 ---------------
[Ann] [오후 2:02] Are you there?
[Ann] [오후 2:02] 사진
[Ben] [오후 2:03] Yes: here
and waiting
--------------- 2021년 5월 4일 화요일 ---------------
[Ann] [오전 9:01] Morning.
[Ben] [오전 9:02] Coffee?
"""


PHONE = """\
Ann 님과 카카오톡 대화
저장한 날짜 : 2021년 5월 4일 오후 7:57

2021년 5월 3일 오후 2:02
2021년 5월 3일 오후 2:02, Ann : Are you there?
2021년 5월 3일 오후 2:02, Ann : 사진
2021년 5월 3일 오후 2:03, Ben : Yes: here
and waiting

2021년 5월 4일 화요일
2021. 5. 4. 오전 9:01, Ann : Morning.
2021. 5. 4. 오전 9:02, Ben : Coffee?
"""
OTHER_PHONE = PHONE.replace("2021년 5월 3일 오후 2:02\n", "2021년 5월 3일 월요일\n")
OTHER_PHONE = OTHER_PHONE.replace("2021년 5월 3일 오", "2021. 5. 3. 오")


DAYS = [("2021/05/03(Mon)", "2021/05/03 จันทร์"), ("2021/05/04(Tue)", "Tue, 04/05/2021")]
OTHER_LINE = LINE.replace(*DAYS[0]).replace(*DAYS[1]).replace("2021/05/03", "03/05/2021")


def test_a_message_that_begins_with_a_quote_ends_with_its_day(tmp_path: Path) -> None:
    quoted = LINE.replace('"Yes: here\nand waiting"', '"Yes" is what I say')
    found = documents(write(tmp_path / "chat.txt", quoted), me=("Ben",))
    assert [chat[1]["content"] for chat in found] == ['"Yes" is what I say', "Coffee?"]


@pytest.mark.parametrize("export", [LINE, OTHER_LINE, KAKAOTALK, PHONE, OTHER_PHONE])
def test_a_chat_whose_days_have_lines_of_their_own_is_read(tmp_path: Path, export: str) -> None:
    path = write(tmp_path / "chat.txt", export)
    assert documents(path, me=("Ben",)) == [
        messages_of(["Are you there?", "Yes: here\nand waiting"]),
        messages_of(["Morning.", "Coffee?"]),
    ]


PLAN = "Yes, the plan:\nwe meet on 12.10.2021!\n2021/05/03(Mon)\nbring v1.2.3 please\nok?"


@pytest.mark.parametrize(
    ("export", "reply"),
    [
        (LINE.replace('"Yes: here\nand waiting"', f'"{PLAN}"'), PLAN),
        (KAKAOTALK.replace("Yes: here\nand waiting", PLAN), PLAN),
        (ANDROID.replace("Yes: here\n\nand waiting", '"One\nTwo"'), '"One\nTwo"'),
        (ANDROID.replace("Yes: here\n\nand waiting", "[Photo]"), "[Photo]"),
        (ANDROID.replace("Yes: here\n\nand waiting", "사진"), "사진"),
    ],
)
def test_what_is_no_word_in_one_program_is_one_in_another(
    tmp_path: Path, export: str, reply: str
) -> None:
    path = write(tmp_path / "chat.txt", export.replace("\u200eIMG-1.jpg (file attached)\n", ""))
    assert documents(path, me=("Ben",))[0][1]["content"] == reply


def test_a_chat_of_wide_characters_is_the_same_when_it_is_read(tmp_path: Path) -> None:
    """What makes the file a chat, or none, lies within its first bytes."""
    path = write(tmp_path / "a.txt", "14:02\tAnn\t" + "あ" * 22_000 + "\n" + "い\n" * 40)
    assert len(documents(path)) > 1
    talk = "あ" * 300
    chat = "".join(f"03.05.21, 14:{i:02} - {'AB'[i % 2]}: {talk}\n{talk}\n" for i in range(60))
    assert len(documents(write(tmp_path / "b.txt", chat), me=("B",))[0]) == 60


@pytest.mark.parametrize(
    "words", ["line\n" * 400_000, '"' + "line\n" * 100_000, "a" + "\n" * 100_000 + "b"]
)
@pytest.mark.parametrize("head", ["03.05.21, 14:0{} - {}: ", "14:0{}\t{}\t"])
def test_a_message_of_megabytes_takes_seconds(tmp_path: Path, head: str, words: str) -> None:
    began = process_time()
    lines = [head.format(i % 10, "AB"[i % 2]) for i in range(50)]
    chat = "2021/05/03(Mon)\n" + "Hi\n".join([*lines, words])
    [[*_, reply]] = documents(write(tmp_path / "a.txt", chat), me=("B",))
    assert len(reply["content"]) > 100_000 and process_time() - began < 10


@pytest.mark.parametrize("part", ["a.b", "longer. ", "“a” ", '"a"', "„a“.", "«", '"', "a "])
def test_a_notice_of_any_length_takes_no_time(tmp_path: Path, part: str) -> None:
    began = process_time()
    notice = f"5/4/21, 9:03\u202fAM - {part * 10_000}\n"
    path = write(tmp_path / "chat.txt", f"{ANDROID}{notice}")
    assert documents(path, me=("Ben",)) and process_time() - began < 10


def test_a_long_line_takes_no_time(tmp_path: Path) -> None:
    began = process_time()
    path = write(tmp_path / "chat.txt", "2021/05/03 " * 5_000 + "\n" + "word " * 20_000)
    assert documents(path) and process_time() - began < 5


def test_a_small_group_has_people_who_write_once(tmp_path: Path) -> None:
    said = enumerate(["Ann", "Ben", "Cleo", "Dan", "Ann"])
    chat = "".join(f"03.05.21, 14:0{i} - {name}: Hi\n" for i, name in said)
    [talk] = documents(write(tmp_path / "chat.txt", chat), me=("Cleo",))
    assert len(talk) == 3


def test_a_chat_in_an_archive_waits_for_whose_words_are_learned(tmp_path: Path) -> None:
    members = {"note.txt": "Some words.", "_chat.txt": WHATSAPP}
    archive = write(tmp_path / "one" / "chat.zip", zipped(members))
    with pytest.raises(UserError, match=r"^\S*/_chat\.txt: it is a WhatsApp chat of Ann"):
        look(find_files([archive]))
    assert len(documents(archive, me=("Ben",))) == 3
    of_folder = look(find_files([archive.parent]))
    assert of_folder.survey.n_documents == 1 and "not used: it is a Wh" in of_folder.table()


def test_chats_of_an_archive_ask_for_one_name_in_one_line(tmp_path: Path) -> None:
    members = {f"{i}.txt": WHATSAPP + "[04.05.21, 09:03:00] Ben: Tea?\n" * i for i in range(9)}
    archive = write(tmp_path / "one" / "chats.zip", zipped(members))
    people = "Ben (63 messages), Ann (27 messages): name the one whose words are learned, such as"
    told = f'/0.txt and 8 more files: they are chats of {people} --me "Ben"'
    with pytest.raises(UserError) as refusal:
        look(find_files([archive]))
    assert str(refusal.value) == f"{archive}{told}"
    with pytest.raises(UserError) as refusal:  # in a folder, too, where there is nothing else
        look(find_files([archive.parent])).check()
    assert str(refusal.value) == f"no document was found: {archive}{told}"


def test_what_telegrams_program_copies_is_a_chat(tmp_path: Path) -> None:
    copied = """\
Ann, [03.05.2021 14:02]
Are you there?

Ben 🐻, [03.05.2021 14:03]
[In reply to Ann]
Yes: here

and waiting

Ann, [03.05.2021 14:04]
[ Photo ]

Ann, [03.05.2021 14:05]
[Forwarded from News]
A headline

Ben 🐻, [03.05.2021 14:06]
Coffee?
"""
    path = write(tmp_path / "chat.txt", copied)
    [talk] = documents(path, me=("Ben 🐻",))
    assert [message["content"] for message in talk] == [
        "Are you there?",
        "Yes: here\n\nand waiting\nCoffee?",
    ]
    assert "skipped 2: a picture" in told(path, me=("Ben 🐻",))
