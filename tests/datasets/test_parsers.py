"""Publishers' files to conversations and stories: a small file of each form."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from texts import zipped

from training.datasets import parsers, parsers_stories
from training.datasets.parsers import members, sentence
from training.datasets.parsers_stories import request, told_in_chat
from training.datasets.registry import DATASETS
from training.formats.texts import SEPARATOR

PERSONA = """user 1 personas,user 2 personas,Best Generated Conversation
"I knit.","I swim.","User 1: Hi, I'm [User 1's name].
User 2: Nice to meet you! I'm (name).
User 1: Do you like ""Emma""?
User 2: Yes, [user 1's name], I do.
User 1: [They shake hands]
User 2: Bye."
"I run.","I cook.","User 1: Hello!
User 2: Hi!
User 2: Are you there?
User 1: No."
"""
QNA = """
> !# @qna.pair.source = qna_chitchat_Friendly

# ? Good to see you
- Hello
- Hi there\x20

**Filters:**
- editorial = chitchat

```markdown
Hello!
```

> !# @qna.pair.source = qna_chitchat_Friendly

# ? can you whistle
- Do you sing?

**Filters:**
- editorial = chitchat

```markdown
Only in my dreams.
```

# ? Are you new?
**Filters:**
    - editorial=chitchat
```
    undefined
```
"""
TALKS = """categories:
- talk
conversations:
- - Good morning, how are you?
  - I am well, how about you?
  - Fine, too.
- - Is it late
  - No
  - No.
- - What: now?
  - Then: this
"""
AGGM = """# for a model
corpus = '''
user: Hello
ai: Hi there!
<|endoftext|>

A heading

user: Write a rhyme.
ai: A cat,
a hat.
user: Thanks!
ai: You're welcome! <|endoftext|>
user: Bye
ai: Bye!
'''
"""
SELF = (
    '"AssignmentId","WorkerId","Reject",'
    + ",".join(f'"Answer.sentence{i}"' for i in range(1, 12))
    + "\n"
)
LINES = [f"I saw film number {i} last week" for i in range(9)]


def self_row(worker: str, reject: str, lines: list[str]) -> str:
    cells = ["1", worker, reject, *lines, *["{}"] * (11 - len(lines))]
    return ",".join(f'"{cell}"' for cell in cells) + "\n"


def gsm8k_answer() -> str:
    return "Tim has 2+3=<<2+3=5>>5 apples\nHe eats one, so 5-1 = <<5-1=4>>4.\n#### 4"


CASES: list[tuple[Callable, str | dict[str, str], list[list[str]]]] = [
    (parsers.chitchat, QNA, [
        ["Good to see you.", "Hello!"], ["Hello.", "Hello!"], ["Hi there.", "Hello!"],
        ["Can you whistle?", "Only in my dreams."], ["Do you sing?", "Only in my dreams."],
    ]),
    (parsers.chatterbot, {
        "chatterbot_corpus/data/english/conversations.yml": TALKS,
        "chatterbot_corpus/data/english/time.yml": TALKS.replace("Fine, too", "Tired"),
        "chatterbot_corpus/data/english/health.yml": "conversations:\n--how?\n-well\n",
        "chatterbot_corpus/data/english/politics.yml": TALKS,
        "chatterbot_corpus/data/french/conversations.yml": TALKS,
    }, [
        ["Good morning, how are you?", "I am well, how about you?", "Fine, too."],
        ["Is it late?", "No.", "No."],
        ["Good morning, how are you?", "I am well, how about you?"],
        ["Good morning, how are you?", "Tired."],
        ["Is it late?", "No."], ["Is it late?", "No."],
    ]),
    (parsers.aggmgpt, AGGM, [
        ["Hello", "Hi there!"],
        ["Write a rhyme.", "A cat,\na hat.", "Thanks!", "You're welcome!"],
        ["Bye", "Bye!"],
        ["Hello", "Hi there!", "Write a rhyme.", "A cat,\na hat.", "Thanks!", "You're welcome!",
         "Bye", "Bye!"],
    ]),
    (parsers.instructions, json.dumps([
        {"instruction": "Name a colour.", "input": "", "output": "Red."},
        {"instruction": "Make it past.", "input": "I go.", "output": "I went."},
    ]), [["Name a colour.", "Red."], ["Make it past.\nI go.", "I went."]]),
    (parsers.dolly, "".join(
        json.dumps({"instruction": question, "context": context, "response": response}) + "\n"
        for question, context, response in [
            ("What is tea?", "", "A drink."), ("What is it?", "A text.", "A drink."),
            ("Summarise", "", "A drink."), ("What is tea?", "", "A drink that"),
        ]), [["What is tea?", "A drink."]]),
    (parsers.official_jokes, json.dumps([
        {"type": "general", "setup": "Why?", "punchline": " Because. "},
        {"type": "programming", "setup": "A bug?", "punchline": "No."},
    ]), [["Why?", "Because."], ["Make me laugh.", "Why? Because."]]),
    (parsers.small_talk_jokes, json.dumps({"AskForAJoke": {"dialogs": [
        {"replays": [{"text": ["Knock.", "Who?"]}]}, {"replays": [{"text": ["As you wish"]}]},
    ]}}), [["Please tell me a joke.", "Knock. Who?"]]),
    (parsers.self_dialogue, {
        "blocked_workers.txt": "W9\n",
        "corpus/movies/a.csv": SELF + self_row("W1", "", [*LINES, "and you?"])
        + self_row("W2", "bad", [*LINES, "and you?"]) + self_row("W9", "", [*LINES, "and you?"])
        + self_row("W3", "", LINES) + self_row("W4", "", ["Why do you ask me?"] * 10),
    }, [[*(f"{line}." for line in LINES), "And you?"]]),
    (parsers.gsm8k, json.dumps({"question": "How many?", "answer": gsm8k_answer()}),
     [["How many?", "Tim has 2+3=5 apples. He eats one, so 5-1 = 4. The answer is 4."]]),
    (parsers_stories.fairy_tale_questions, {
        "data-by-train-split/section-stories/val/the-hen-story.csv":
            'section,text\n1,"A hen had ""one"" egg."\n2,' + "x" * 801 + "\n",
        "data-by-train-split/section-stories/val/lost-story.csv":
            "section,text\n1,It wasa day.He went.\n",
        "data-by-train-split/questions/val/the-hen-questions.csv":
            "question_id,cor_section,question,ex-or-im1,answer1\n1,1,What did she have?,explicit,"
            "one egg\n2,1,Was she glad?,implicit,yes\n3,2,What?,explicit,x\n"
            "4,1,Who had it?,explicit,a hen\n",
        "data-by-train-split/questions/val/lost-questions.csv":
            "question_id,cor_section,question,ex-or-im1,answer1\n1,1,Who?,explicit,he\n",
    }, [['A hen had "one" egg.\nWhat did she have?', "One egg.", "Who had it?", "A hen."]]),
]  # fmt: skip


def write(path: Path, content: str | dict[str, str]) -> Path:
    """A text file, or a zip as GitHub makes them."""
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
        return path
    inside = {f"name-1f0c/{name}": text for name, text in content.items()}
    path.write_bytes(zipped({"name-1f0c/": "", **inside}))
    return path


@pytest.mark.parametrize(
    ("parse", "content", "chats"), CASES, ids=lambda c: getattr(c, "__name__", "")
)
def test_chats_are_read(parse: Callable, content, chats: list[list[str]], tmp_path: Path) -> None:
    assert list(parse(write(tmp_path / "file", content))) == chats


def test_every_parser_is_tested() -> None:
    used = {origin.parse for d in DATASETS.values() for origin in d.origins}
    here = {parse for parse, _, _ in CASES} | {
        parsers.persona, parsers.some_chitchat, parsers.chitchat_chains,
        parsers_stories.tinystories, parsers_stories.tinystories_chats,
        parsers_stories.picture_books, parsers_stories.fairy_tales,
    }  # fmt: skip
    assert used == here


def test_placeholders_get_names_and_a_stage_direction_ends_the_chat(tmp_path: Path) -> None:
    (turns,) = parsers.persona(write(tmp_path / "file", PERSONA))
    name = turns[0].removeprefix("Hi, I'm ").removesuffix(".")
    other = turns[1].removeprefix("Nice to meet you! I'm ").removesuffix(".")
    assert {name, other} < set(parsers.NAMES) and name != other
    assert turns[2:] == ['Do you like "Emma"?', f"Yes, {name}, I do."]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("how are you", "How are you?"),
        ("is it  late", "Is it late?"),
        ("when I was young", "When I was young."),
        ("What a day!", "What a day!"),
        ("", ""),
    ],
)
def test_a_sentence_gets_its_capital_and_its_end(text: str, whole: str) -> None:
    assert sentence(text) == whole


def test_small_talk_is_chained_the_same_each_time(tmp_path: Path) -> None:
    path = write(tmp_path / "file", QNA)
    chains = list(parsers.chitchat_chains(path))
    assert chains == list(parsers.chitchat_chains(path))
    assert all(chain[1] == "Hello!" and chain[3] == "Only in my dreams." for chain in chains)
    some = list(parsers.some_chitchat(path))
    assert all(chat in list(parsers.chitchat(path)) for chat in some) and len(some) < 5


def test_a_story_is_told_in_a_chat_or_is_plain(tmp_path: Path) -> None:
    short = "A boy named Tim had a ball."
    stories = [f"Once there was an owl number {i}. " + "It flew far. " * 40 for i in range(20)]
    stories += [f"Once a girl named Lily lost {i} keys. " + "She ran on. " * 40 for i in range(20)]
    stories = [short, *map(str.strip, stories)]
    path = write(tmp_path / "file", f"\n{SEPARATOR}\n".join(stories))
    plain_ones = list(parsers_stories.tinystories(path))
    chats = list(parsers_stories.tinystories_chats(path))
    assert short in plain_ones
    assert {s for s in stories if told_in_chat(s)}.isdisjoint(plain_ones)
    assert {story for _, story in chats} < {s for s in stories if told_in_chat(s)}
    assert all("girl named Lily" in asked for asked, _ in chats) and chats


def test_a_request_names_who_and_what() -> None:
    assert request("A fox saw an apple. The apple fell. The car came.", 1) == (
        "Can you tell me a story about a fox and an apple?"
    )
    assert request("An elephant slept.", 2) == "Please tell me a story about an elephant."
    assert request("It rained.", 0) is None


def test_books_are_read_if_their_licence_is_free(tmp_path: Path) -> None:
    def book(licence: str) -> str:
        pages = f"# Rain\n\n##\nIt {licence} rains.\n\n##\nIt stops.\n\n##\n"
        return f"{pages}* License: [{licence}]\n* Text: A B\n"

    names = ("CC-BY", "CC-BY-NC", "Public Domain", "CC BY-NC-SA")
    path = write(tmp_path / "file", {f"en/{name}.md": book(name) for name in names})
    books = list(parsers_stories.picture_books(path))
    assert books == [f"It {name} rains.\nIt stops." for name in ("CC-BY", "Public Domain")]


def test_tales_are_cut_between_sections(tmp_path: Path) -> None:
    rows = "section,text\n" + "".join(f"{i},{str(i) * 1400}\n" for i in range(5))
    path = write(tmp_path / "f", {"data-by-train-split/section-stories/val/a-story.csv": rows})
    pieces = list(parsers_stories.fairy_tales(path))
    assert [len(piece) for piece in pieces] == [2801, 2801, 1400]
    assert "".join(pieces).replace("\n", "") == "".join(str(i) * 1400 for i in range(5))


def test_a_file_that_is_not_utf_8_is_read_as_windows_1252(tmp_path: Path) -> None:
    content = zipped({"name/categories/animals": "#Q Who’s\r\n".encode("cp1252")})
    (tmp_path / "a.zip").write_bytes(content)
    (member,) = members(tmp_path / "a.zip", "categories/*")
    assert member == ("categories/animals", "#Q Who’s\n")
