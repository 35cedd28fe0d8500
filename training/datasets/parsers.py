"""Parsers that yield conversations from publishers' files, one for each file format.

Each takes the path of a file, or of a repository's zip, and yields conversations as lists of
what is said in turn, the user first; ``cleaning.py`` decides which are fit. What is chosen at
random is chosen by a fixed seed or by the text itself, so that it is always the same.
Stories are read in ``parsers_stories.py``.

>>> from pathlib import Path
>>> next(gsm8k(Path("train.jsonl")))                                   # doctest: +SKIP
['Tim has 2 apples and gets 3. How many has he?', 'He has 2 + 3 = 5 apples. The answer is 5.']
"""

import ast
import csv
import io
import json
import random
import re
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import yaml

from training.data.corpus import document_number

Chats = Iterator[list[str]]

NAMES = ("Anna", "Ben", "Clara", "David", "Ella", "Finn", "Grace", "Henry", "Ivy", "Jack", "Kate")
SHORT_ANSWER = 420  # maximum characters of a short answer
LINE = re.compile(r"^User ([12]): *", re.MULTILINE)
PLACEHOLDER = re.compile(r"[\[(](?:user ([12])(?:'s)? ?)?(?:your |my )?(?:name|friend)[\])]", re.I)
STAGE_DIRECTION = re.compile(r"[\[(*]")
CHITCHAT = re.compile(r"^# \?(.*?)^\*\*Filters:.*?^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPEAKER = re.compile(r"^(?:user|ai):", re.MULTILINE)
JOKE_REQUESTS = (
    "Tell me a joke.",
    "Do you know a joke?",
    "Please tell me a joke.",
    "Make me laugh.",
)
NO_TOPICS = ("coding", "tech_support", "politics", "gossip", "literature", "swear_words")
QUESTION = re.compile(
    r"(what|who|where|when|why|how|which)('s| (is|are|do|does|did|can|could|will|would|was|were|"
    r"should|old|many|much|long)\b)|(is|are|do|does|did|can|could|will|would|should|have|has|was|"
    r"were|am) (i|you|your|he|she|it|we|they|there|this|that|the)\b",
    re.IGNORECASE,
)


def persona(path: Path) -> Chats:
    """Synthetic-Persona-Chat: placeholders get names, and a chat ends before a stage direction."""
    for row in read_csv(path.read_text(encoding="utf-8")):
        text = row["Best Generated Conversation"]
        rng = random.Random(document_number(text))
        names = dict(zip("12", rng.sample(NAMES, 2)))
        said = LINE.split(text)[1:]
        turns: list[str] = []
        for speaker, line in zip(said[::2], said[1::2]):
            line = named(line.strip(), speaker, names)
            if STAGE_DIRECTION.search(line) or speaker != "12"[len(turns) % 2]:
                break
            turns.append(line)
        if len(turns) >= 4:
            yield turns


def named(line: str, speaker: str, names: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: names[match[1] or speaker], line)


def chitchat(path: Path) -> Chats:
    """QnA Maker's small talk: each of many wordings of a question, with the same answer."""
    for questions, answer in intents(path):
        yield from ([sentence(question), answer] for question in questions)


def some_chitchat(path: Path) -> Chats:
    """A third of the chitchat, for the second and third file with the same questions."""
    return (chat for chat in chitchat(path) if document_number(chat[0]) % 3 == 0)


def chitchat_chains(path: Path) -> Chats:
    """Chats of a greeting, one to four unrelated questions, and thanks or a goodbye."""
    groups: dict[str, list[tuple[list[str], str]]] = {"hello": [], "thank you": [], "bye": []}
    others: list[tuple[list[str], str]] = []
    for questions, answer in intents(path):
        said = {question.lower().strip(" .!?") for question in questions}
        kind = next((word for word in groups if word in said), None)
        (groups[kind] if kind else others).append((questions, answer))
    rng = random.Random(0)
    for _ in range(12 * len(others)):
        chain = [rng.choice(groups["hello"])] if groups["hello"] else []
        chain += rng.sample(others, min(rng.randint(1, 4), len(others)))
        chain += [
            rng.choice(g) for g in (groups["thank you"], groups["bye"]) if g and rng.random() < 0.5
        ]
        yield [text for asked, answer in chain for text in (sentence(rng.choice(asked)), answer)]


def intents(path: Path) -> Iterator[tuple[list[str], str]]:
    for block, answer in CHITCHAT.findall(path.read_text(encoding="utf-8-sig")):
        questions = [line.removeprefix("- ").strip() for line in block.strip().splitlines()]
        if answer.strip() not in ("", "undefined"):  # some versions of the files have such answers
            yield [question for question in questions if question], answer.strip()


def chatterbot(path: Path) -> Chats:
    """ChatterBot's corpus: `conversations` have many turns; else each line answers the first."""
    for name, text in members(path, "chatterbot_corpus/data/english/*.yml"):
        topic = Path(name).stem
        if topic in NO_TOPICS:
            continue
        try:
            content = yaml.load(text, yaml.BaseLoader)  # reads "No" as a string, not as a boolean
            lists = content["conversations"]
        except (yaml.YAMLError, KeyError, TypeError):
            continue  # one file of the repository is not YAML
        for lines in lists if isinstance(lists, list) else []:
            if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
                continue  # a colon made an object of it
            if topic == "conversations":
                yield [sentence(line) for line in lines]
            else:
                yield from ([sentence(lines[0]), sentence(answer)] for answer in lines[1:])


def aggmgpt(path: Path) -> Chats:
    """A Python file with one long string of exchanges; yields each alone, and some in a row."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    text = max((text for text in texts if isinstance(text, str)), key=len)
    exchanges = []
    for part in text.split("<|endoftext|>"):
        turns = [turn.strip() for turn in SPEAKER.split(part)[1:]]
        if turns and len(turns) % 2 == 0:
            exchanges.append(turns)
    yield from exchanges
    rng = random.Random(0)
    while exchanges:
        n = rng.randint(3, 6)
        yield [turn for turns in exchanges[:n] for turn in turns]
        exchanges = exchanges[n:]


def instructions(path: Path) -> Chats:
    """LLMs-from-scratch: instruction, input and output."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        given = f"\n{row['input']}" if row["input"] else ""
        yield [row["instruction"] + given, row["output"]]


def dolly(path: Path) -> Chats:
    """Questions that need no passage, with short and complete answers."""
    for row in json_lines(path):
        question, answer = row["instruction"].strip(), row["response"].strip()
        is_short = len(question) <= 200 and len(answer) <= SHORT_ANSWER
        if not row["context"] and question.endswith("?") and is_short and answer.endswith("."):
            yield [question, answer]


def official_jokes(path: Path) -> Chats:
    """Jokes of setup and punchline, told as a riddle or on request."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        setup, punchline = row["setup"].strip(), row["punchline"].strip()
        if row["type"] == "programming":
            continue
        if setup.endswith("?"):
            yield [setup, punchline]
        yield [request_joke(setup), f"{setup} {punchline}"]


def small_talk_jokes(path: Path) -> Chats:
    """Oracle's small-talk bot: the replies to its intent AskForAJoke."""
    dialogs = json.loads(path.read_text(encoding="utf-8"))["AskForAJoke"]["dialogs"]
    for replay in dialogs[0]["replays"]:
        joke = " ".join(replay["text"])
        yield [request_joke(joke), joke]


def request_joke(joke: str) -> str:
    return JOKE_REQUESTS[document_number(joke) % len(JOKE_REQUESTS)]


def self_dialogue(path: Path) -> Chats:
    """What one person wrote for two: without rejected work, one-word lines and repetitions."""
    blocked = {
        worker for _, text in members(path, "blocked_workers.txt") for worker in text.split()
    }
    for _, text in members(path, "corpus/*/*.csv"):
        for row in read_csv(text):
            if row["Reject"] or row["WorkerId"] in blocked:
                continue
            answers = ((key, row[key]) for key in row if (key or "").startswith("Answer.sentence"))
            in_order = sorted(
                answers, key=lambda item: int(item[0].removeprefix("Answer.sentence"))
            )
            lines = [
                line.strip() for _, line in in_order if line and line.strip() not in ("", "{}")
            ]
            n_words = sum(len(line.split()) for line in lines) / max(len(lines), 1)
            varied = len(set(lines)) == len(lines) >= 6
            if varied and 4 <= n_words <= 30 and any("?" in line for line in lines):
                yield [sentence(line) for line in lines]


def gsm8k(path: Path) -> Chats:
    """Grade-school maths: the steps in one paragraph, without calculator annotations."""
    for row in json_lines(path):
        steps, _, result = re.sub(r"<<.*?>>", "", row["answer"]).rpartition("\n#### ")
        lines = [sentence(line) for line in steps.splitlines() if line.strip()]
        yield [row["question"], " ".join([*lines, f"The answer is {result.strip()}."])]


def sentence(text: str) -> str:
    """Return a text with a capital letter and a final punctuation mark."""
    text = " ".join(text.split())
    if text and text[-1] not in ".!?\"')":
        text += "?" if QUESTION.match(text) else "."
    return text[:1].upper() + text[1:]


def json_lines(path: Path) -> Iterator[dict]:
    with open(path, encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())


def read_csv(text: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(io.StringIO(text, newline=""))


def members(path: Path, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of the files in a repository's zip that match a pattern, in order."""
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            inside = name.partition("/")[2]  # GitHub puts all files into one folder
            if fnmatch(inside, pattern) and inside.count("/") == pattern.count("/"):
                data = archive.read(name).replace(b"\r\n", b"\n")
                try:
                    yield inside, data.decode("utf-8-sig")
                except UnicodeDecodeError:
                    yield inside, data.decode("cp1252", errors="replace")
