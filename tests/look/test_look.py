"""What is said of texts before anything is trained: amounts, oddities, and samples with marks."""

import json
import random
import re
import shutil
import string
from pathlib import Path
from time import process_time

import pytest
from conftest import ROOT, TINY

from gptcore.checks import UserError
from gptcore.system.files import sealed
from gptcore.text.tokenizer import Tokenizer
from training.__main__ import main
from training.data.corpus import ids_and_mask, read_documents
from training.data.survey import survey
from training.formats.found import Asked
from training.formats.places import find_files
from training.look.look import look
from training.look.notices import Notices
from training.look.samples import seen

TOKENIZER = Tokenizer.train([], 262)


def turn(user: str, reply: str, **more: int) -> list[dict]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": reply, **more}]


def noticed(*texts: str, n_equal: int = 0) -> str:
    notices = Notices()
    for text in texts:
        notices.add(text)
    return "\n".join(notices.lines(n_equal))


def prose(seed: int, n_words: int = 200) -> str:
    draw = random.Random(seed)
    words = ["".join(draw.choices(string.ascii_lowercase, k=5)) for _ in range(n_words)]
    return " ".join(words)


def test_what_is_learned_is_marked_as_the_loss_masks_it() -> None:
    chat = [
        {"role": "system", "content": "Be kind."},
        *turn("Hi", "Hello!"),
        *turn("And?", "Wrong.", weight=0),
        *turn("Now?", "Grüße"),
    ]
    assert seen(chat[:3]) == "system: Be kind. user: Hi assistant: «Hello!»"
    assert seen(chat[3:]) == "user: And? assistant: Wrong. user: Now? assistant: «Grüße»"
    for document in (chat[:4], chat[3:], "Once upon a time"):
        marked = re.findall("«(.*?)»", seen(document))
        ids, mask = ids_and_mask(document, TOKENIZER)
        assert TOKENIZER.decode(ids[mask].tolist()).strip() == "".join(marked)


def test_of_a_long_document_the_beginning_of_each_message_is_shown() -> None:
    chat = [{"role": "system", "content": "Be kind.\n" * 99}, *turn("Hi", "Hello!") * 2]
    assert seen(chat).startswith("system: Be kind.⏎Be kind.⏎")
    assert seen(chat).endswith(" ... user: Hi assistant: «Hello!» user: Hi ...")
    assert len(seen("word " * 999)) < 200


def test_all_files_that_cannot_be_read_are_told_at_once(tmp_path: Path) -> None:
    good, empty, picture, damaged = (
        tmp_path / name for name in ("good", "empty", "picture", "damaged")
    )
    good.write_text("Once upon a time.")
    empty.touch()
    picture.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    damaged.write_bytes("naïve".encode() + b"\xff")
    with pytest.raises(UserError) as refusal:
        look(find_files([good, empty, picture, good, damaged]))
    told = str(refusal.value).split("; ")
    assert told[:2] == [
        f"{empty}: it is empty: leave it out",
        f"{picture}: it is a PNG picture: leave it out",
    ]
    assert told[2].startswith(f"{damaged}: line 1 is not UTF-8 text")
    assert told[3].endswith("can be read")
    with pytest.raises(UserError) as refusal:
        look(find_files([empty] * 22))
    assert "; 2 more files cannot be read; texts, Markdown," in str(refusal.value)
    missing = [tmp_path / "none.txt", tmp_path / "nought.txt"]
    with pytest.raises(UserError) as refusal:
        find_files([good, *missing])
    assert str(refusal.value) == "; ".join(f"no such file or folder: {path}" for path in missing)


def test_of_a_folder_without_a_document_each_reason_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (tmp_path / "b.txt").write_text(" ")
    with pytest.raises(UserError) as refusal:
        look(find_files([tmp_path])).check()
    assert str(refusal.value) == (
        f"no document was found: {tmp_path / 'a.png'}: it is a PNG picture; "
        f"{tmp_path / 'b.txt'}: it holds nothing but white space"
    )
    for i in range(4):
        (tmp_path / f"c{i}.txt").write_text(" ")
    chat = "".join(f"01.02.24, 10:0{i} - {'AB'[i % 2]}nn: Hi {i}\n" for i in range(6))
    (tmp_path / "d.txt").write_text(chat)
    assert main(["look", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(
        f"error: no document was found: {tmp_path / 'b.txt'} and 4 more files: it holds nothing "
        f"but white space; {tmp_path / 'd.txt'}: it is a WhatsApp chat of Ann (3 messages), Bnn "
    )
    assert told.err.endswith(f"; {tmp_path / 'a.png'}: it is a PNG picture\n")
    assert not told.out, "each reason is told once"


def test_what_is_quoted_of_a_line_begins_and_ends_at_words() -> None:
    said = noticed("Talked with [[Mr. Novak|old Novak]] about the rear rack.")
    assert "such as 'with [[Mr. Novak|old Novak]] about the': a model" in said
    assert "such as '<b>No</b>': a model" in noticed(f"{'word ' * 9}{'x' * 40} <b>No</b>")
    assert f"such as '{'ab' * 20}': clean" in noticed("ab" * 200), "one word"


def test_the_whole_is_counted_and_samples_are_of_all_of_it(tmp_path: Path) -> None:
    rows = [{"messages": turn(f"Question {i}?", f"Reply {i} " * 40)} for i in range(300)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows[:100])))
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, [*rows[100:], {"bad": 1}])))
    found = look(find_files([tmp_path]))
    lines = found.summary().splitlines()
    assert lines[0].startswith("in all 300 documents of ") and lines[0].endswith("; 1 skipped")
    shown = [line for line in lines if line.startswith("  ")]
    assert len(shown) == 3 == len(set(shown))
    assert any(int(line.split("Question ")[1].split("?")[0]) >= 100 for line in shown)
    assert all("«Reply" in line and line.endswith(" ...»") for line in shown)


def test_the_look_and_a_pass_over_the_corpus_agree(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text(prose(1, 5000))
    files = find_files([path])
    assert look(files).survey == survey(lambda: read_documents(files))


def test_of_one_long_text_only_the_beginning_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.look.notices.NOTICED", 1000)
    monkeypatch.setattr("training.look.notices.STRETCHES", 10)
    mail = "ann@example.org "
    said = noticed(mail + prose(1) + mail, mail)
    assert said == ("1 e-mail address, which a model may repeat\n(of the first 1,000 characters)")


def test_equal_and_nearly_equal_documents_are_counted() -> None:
    one, other = prose(1), prose(2)
    near = one.replace(one.split()[70], "changed")
    found = survey(lambda: [one, other, near, one])
    assert found.n_equal == 1
    said = noticed(one, other, near, one, n_equal=found.n_equal).splitlines()
    assert said == [
        "1 document occurred before, word for word: kept, and learned more often",
        "1 document nearly like an earlier one",
    ]
    assert noticed(*(prose(seed) for seed in range(200))) == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("<div class='a'>Hello</div>", "like markup"),
        ('  "key": 4,', "like markup"),
        ("The [[city]] of {{name}}", "like markup"),
        ("Price &amp; offer", "like markup"),
        ("PK\x03\x04 data", "like binary data"),
        ("a broken \ufffd character", "like binary data"),
        ("write to Ann.Lee+news@mail.example.org today", "1 e-mail address,"),
        ("call +49 (30) 123-4567 now", "1 phone number,"),
        ("call (212) 555-0123", "1 phone number,"),
        ("ruf 0151 2345678 oder 089/1234567 an", "2 phone numbers,"),
    ],
)
def test_what_is_unlike_prose_is_noticed(line: str, told: str) -> None:
    assert told in noticed(f"A line of words.\n{line}\nAnother line.")


@pytest.mark.parametrize(
    "line",
    [
        "1 < 2 and 3 > 2",
        "In 1914-1918 12,345,678 people and 3.14159 of them; 10:30, 2024-11-05",
        "A price of 200-300 dollars, or 1,000 to 2,000",
        "me @ home",
        'It was 5 AT&T; she said: "yes"',
    ],
)
def test_prose_is_not_noticed(line: str) -> None:
    assert noticed(line) == ""


def test_a_long_message_without_spaces_is_looked_at_in_no_time() -> None:
    began = process_time()
    assert "1 e-mail address," in noticed("-" * 200_000 + " ann@example.org")  # it took a minute
    assert process_time() - began < 10


def test_a_large_text_is_noticed_in_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.look.notices.NOTICED", 50)
    said = noticed("ann@example.org " * 4, "bob@example.org", "eve@example.org")
    assert said.splitlines() == [
        "3 e-mail addresses, which a model may repeat",
        "(of the first 50 characters)",
    ]


def test_hidden_files_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".git").mkdir()
    for name in (".git/config", ".secret", "open.txt"):
        (tmp_path / name).write_text("Some words.")
    assert main(["look", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "2 hidden files are left out" in said and "in all 1 document of 11" in "".join(said)


def test_what_a_saved_page_brings_along_is_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = ("deep/a.js", "B.CSS", "c.map")
    (tmp_path / "deep").mkdir()
    for name in (*code, "d.txt"):
        (tmp_path / name).write_text("Some words.")
    assert {file.own_name for file in find_files([tmp_path])} == {"a.js", "B.CSS", "c.map", "d.txt"}
    (tmp_path / "page.HTML").write_text("<html><body><p>Words of a page.</p></body></html>")
    assert {file.own_name for file in find_files([tmp_path])} == {"d.txt", "page.HTML"}
    assert [file.own_name for file in find_files([tmp_path / "B.CSS"])] == ["B.CSS"], "it is named"
    assert main(["look", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "3 files with style or scripts of web pages are left out" in said


def test_of_many_files_those_that_are_not_used_have_a_line_for_each_reason(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"a{i:02}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "b.txt").write_bytes(b"\0\1\2")
    for i in range(22):
        (tmp_path / f"c{i:02}.txt").write_text("Some words.")
    lines = look(find_files([tmp_path])).table().splitlines()
    a00 = tmp_path / "a00.png"
    assert lines[0] == f"not used: {a00} and 29 more files: it is a PNG picture"
    assert lines[1].startswith(f"not used: {tmp_path / 'b.txt'}: it is binary")
    assert lines[2] == f"{tmp_path / 'c00.txt'}: text, 1 text, 11 bytes"
    assert lines[-1] == "and 2 more files, in which 0 are skipped" and len(lines) == 23


def test_little_text_is_told_of_the_start_that_suits_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hint = "half a megabyte is better, or a start that knows more: --init models/default"
    chat, text = tmp_path / "faq.csv", tmp_path / "book.txt"
    chat.write_text("question,answer\n" + "Where is the market?,In the town.\n" * 20)
    found = look(find_files([chat]))
    assert found.suits_init and hint in found.summary()
    text.write_text("The market of the town has bread and that fish to you. " * 20)
    fetch = (
        "python -m export fetch smollm2-135m, then train with --init models/smollm2-135m --lora 16"
    )
    found = look(find_files([text]))
    told = found.summary()
    assert fetch in told and "learns its words and not its sense" in told and not found.suits_init
    known = Tokenizer.train(["The market of the town."], 300)
    for file, start in ((chat, hint), (text, fetch)):
        told = look(find_files([file])).summary(known)
        assert "--init" not in told, "it begins with a model"
        assert f" tokens (pieces of words, of {known.vocab_size} kinds)\n" in told
        for more, is_told in ([], True), (["--json", str(tmp_path / "found.json")], False):
            assert main(["look", str(file), *more]) == 0
            assert (start in capsys.readouterr().out) == is_told, "a program chooses itself"
    chat.write_text("question,answer\n" + "Где рынок?,В городе.\n" * 20)
    found = look(find_files([chat]))
    told = found.summary()
    assert "little text" in told and "--init" not in told and not found.suits_init
    text.write_text("Рынок города открыт каждый день. " * 20)
    told = look(find_files([text])).summary()
    assert "are little for a plain text" in told and "smollm2" not in told
    assert "python -m export fetch --list names some, Qwen2.5 for many languages" in told


def test_a_script_that_the_model_to_begin_with_does_not_know_is_told(tmp_path: Path) -> None:
    file = tmp_path / "chat.csv"
    ships = Tokenizer.load(ROOT / "models" / "default")
    for asked, is_told in (
        ("When do you open?,At nine.", False),
        ("Milloin avaatte lauantaisin?,Yhdeksältä.", False),
        ("Когда вы открываетесь?,В девять.", True),
        ("你们几点开门？,九点。", True),
    ):
        file.write_text("question,answer\n" + f"{asked}\n" * 20)
        found = look(find_files([file]))
        assert ("may not know this language" in found.summary(ships)) == is_told
        assert "may not know" not in found.summary(), "a new model learns its letters"


def test_what_a_training_wrote_is_no_text(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(TINY / "run", runs / "mine")
    (runs / "shards" / "1f0c").mkdir(parents=True)
    (runs / "shards" / "1f0c" / "manifest.json").write_text(sealed({"format": 1}))
    (runs / "shards" / "1f0c.lock").touch()
    (runs / "theirs").mkdir()
    for name in ("theirs/config.json", "mine.txt", "notes.lock"):
        (runs / name).write_text("{}")
    found = {file.own_name for file in find_files([tmp_path])}
    assert found == {"config.json", "mine.txt", "notes.lock"}


def test_files_of_a_folder_that_are_not_used_are_counted_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "open.txt").write_text("Some words.")
    (tmp_path / "table.csv").write_text("x,y,z\na,b,c\nd,e,f\n")
    found = look(find_files([tmp_path]))
    told = found.summary()
    [_, unused] = found.table().splitlines()
    assert unused.startswith(f"{tmp_path / 'table.csv'}: not used: its columns are 'x'"), "one line"
    assert "skipped" not in told, "of the files that are used, nothing is"
    assert "\nnote: 1 of 2 files is not used, for the reasons above\n" in told
    assert "table.csv" not in told, "it is named above"


def test_a_look_writes_for_programs_who_writes_and_which_files_are_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "[01.03.24, 10:0{i}:00] {name}: Hello, this is message {i}.\n"
    people = ("Ann", "Ben", "Ben")
    chat = "".join(line.format(i=i, name=people[i % 3]) for i in range(9))
    (tmp_path / "chat.txt").write_text(chat)
    (tmp_path / "white.txt").write_text(" ")
    found = tmp_path / "found.json"
    assert main(["look", str(tmp_path), "--json", str(found)]) == 2
    read = json.loads(found.read_text())
    assert read["people"] == ["Ben", "Ann"]
    assert [Path(name).name for name in read["asking"]] == ["chat.txt"]
    assert [Path(name).name for name in read["unused"]] == ["chat.txt", "white.txt"]
    found.unlink()
    assert main(["look", str(tmp_path), "--me", "Cleo", "--me", "Ben", "--json", str(found)]) == 0
    read = json.loads(found.read_text())
    [reason] = read["unused"].values()
    assert read["asking"] == [] and reason == "it holds nothing but white space"


@pytest.mark.parametrize(
    ("name", "text", "suits_init"),
    [
        ("faq.csv", "question,answer\nHi,Hello!\n", True),
        ("faq.csv", "question,answer\n" + f"Hi,{'Hello! ' * 100}\n" * 800, False),  # enough
        ("faq.csv", "Frage,Antwort\n" + "Wann habt ihr auf?,Von neun bis fünf.\n" * 20, False),
        ("book.txt", "It was a dark and stormy night.", False),
    ],
)
def test_a_look_writes_for_programs_whether_the_model_that_ships_is_the_better_start(
    tmp_path: Path, name: str, text: str, suits_init: bool
) -> None:
    (tmp_path / name).write_text(text)
    found = tmp_path / "found.json"
    assert main(["look", str(tmp_path / name), "--json", str(found)]) == 0
    assert json.loads(found.read_text())["suits_init"] == suits_init


@pytest.mark.parametrize(
    ("name", "text", "is_told"),
    [
        ("book.txt", "It was a dark and stormy night.", True),
        (
            "chat.txt",
            "".join(f"01.02.24, 10:0{i} - {'AB'[i % 2]}nn: Hi {i}\n" for i in range(6)),
            True,
        ),
        ("faq.csv", "ask,say\nHi,Hello!\n", False),
        ("faq.jsonl", '{"ask": "Hi", "say": "Hello!"}\n', False),
    ],
)
def test_columns_that_no_file_has_are_said(
    tmp_path: Path, name: str, text: str, is_told: bool
) -> None:
    (tmp_path / name).write_text(text)
    asked = Asked(("Ann",), ("ask", "say"))
    files = find_files([tmp_path / name])
    assert ("note: --columns is not used" in look(files, asked).summary()) == is_told


def test_a_name_that_no_chat_needs_is_said(tmp_path: Path) -> None:
    table = tmp_path / "faq.csv"
    table.write_text("question,answer\nHi,Hello!\n")
    assert "note: --me is not used" in look(find_files([table]), Asked(me=("Ann",))).summary()
    assert "--me" not in look(find_files([table]), Asked()).summary()
    chat = tmp_path / "chat.txt"
    chat.write_text("".join(f"01.02.24, 10:0{i} - {'AB'[i % 2]}nn: Hi {i}\n" for i in range(6)))
    assert "--me" not in look(find_files([table, chat]), Asked(me=("Ann",))).summary()


@pytest.mark.parametrize(
    ("wordings", "n_rows", "n_talks", "is_said"),
    [
        (["When does it open?"], 50, 0, True),
        (["When does it open?", "when does it open"], 50, 0, True),  # the same words
        (["When does it open?", "From when may I come?"], 50, 0, False),
        (["When does it open?"], 9, 0, False),
        (["When does it open?"], 5001, 0, False),
        (["When does it open?"], 50, 60, False),  # a set of chats, of which some are short
        (["When does it open?"], 2600, 2500, False),  # a table has 5,000 rows at most
    ],
)
def test_a_table_with_one_wording_of_each_question_is_told_of_other_words(
    tmp_path: Path, wordings: list[str], n_rows: int, n_talks: int, is_said: bool
) -> None:
    rows = [turn(f"Day {i}: {asked}", f"At {i}.") for i in range(n_rows) for asked in wordings]
    rows += [turn("Hi", "Hello!") + turn(f"And {i}?", f"It is {i}.") for i in range(n_talks)]
    path = tmp_path / "faq.jsonl"
    path.write_text("\n".join(json.dumps({"messages": row}) for row in rows))
    said = look(find_files([path])).summary()
    line = f"note: {n_rows} of {n_rows} answers stand with one wording of their question: a small"
    assert (
        (line in said)
        == is_said
        == ("add rows that ask in other words for the same answer" in said)
    )


def test_of_a_table_whose_answers_are_few_or_of_a_chat_nothing_is_said_of_other_words(
    tmp_path: Path,
) -> None:
    rows = [f"Is {i} even?,{('Yes.', 'No.')[i % 2]}" for i in range(50)]
    (tmp_path / "even.csv").write_text("\n".join(["question,answer", *rows]))
    assert "wording" not in look(find_files([tmp_path / "even.csv"])).summary()
    said = [f"0{1 + i // 2}.02.24, 10:0{i % 2} - {'AB'[i % 2]}nn: {i}, Hi" for i in range(18)]
    said += [f"{line.replace('.02.', '.03.')}." for line in said]
    chat = tmp_path / "chat.txt"
    chat.write_text("\n".join(said))
    found = look(find_files([chat]), Asked(me=("Bnn",)))
    assert found.survey.n_chats == 18 and "wording" not in found.summary()


@pytest.mark.parametrize(("n_with", "is_told"), [(10, True), (9, True), (8, False)])
def test_a_system_message_of_nearly_all_chats_is_said_to_be_kept(
    tmp_path: Path, n_with: int, is_told: bool
) -> None:
    """A newcomer's model answered badly, as nobody gave it the system message that it expects."""
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    kind = [{"role": "system", "content": "Be kind."}, *chat]
    rows = [json.dumps({"messages": chat if i < 10 - n_with else kind}) for i in range(10)]
    file = tmp_path / "chats.jsonl"
    file.write_text("\n".join(rows))
    told = look(find_files([file])).summary()
    expected = 'note: nearly all chats begin with the system message "Be kind.": '
    assert (expected in told) == is_told


def test_several_system_messages_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"

    def told(*systems: str) -> str:
        chats = [[{"role": "system", "content": text}, *turn("Hi", "Hello!")] for text in systems]
        rows = [json.dumps({"messages": chat}) for chat in [*chats, turn("Hi", "Hello!")]]
        file.write_text("\n".join(rows))
        return look(find_files([file])).summary()

    assert "note: the chats begin with 2 different system messages: " in told("A.", "B.", "A.")
    assert "system message" not in told("A.", "A.", "A."), "it is one of them and none"


def test_what_there_is_one_of_is_told_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.txt").write_text("x")
    (tmp_path / "one.csv").write_text("question,answer\nHi,Hello!\nBye\n")
    assert main(["look", str(tmp_path / "one.txt"), str(tmp_path / "one.csv")]) == 0
    said = capsys.readouterr().out
    assert "one.txt: text, 1 text, 1 byte\n" in said
    assert "skipped 1: it has 1 column where the first row has 2" in said
    assert "too short" not in said, "there is another document"
    assert main(["look", str(tmp_path / "one.txt")]) == 0
    refusal = "the text is too short: 1 byte in 1 document; at least 2 that differ are needed"
    assert f"\nnote: {refusal}" in capsys.readouterr().out, "as a training says"
