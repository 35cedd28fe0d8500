"""The generated training corpus: simple English dialogues, which need no download.

This module chooses the order of topics. ``topics.py``, ``questions.py``, ``told.py``, ``care.py``,
``exchanges.py`` and ``stories.py`` hold the topics, ``talk.py`` builds turns and remembers what the
user told, ``manners.py`` says how the assistant speaks, ``words.py`` imitates how people type,
``phrases/``, ``exchanges/``, ``tales/`` and ``roles/`` hold the phrases, ``structures/`` and
``predicates.txt`` the sentences in which a user tells facts.
`python -m training.dialogues --count 5` prints some dialogues.

>>> chat = next(dialogues(seed=1))
>>> chat[-1]["role"]
'assistant'
"""

import random
from collections.abc import Iterator

from training.dialogues import questions, stories
from training.dialogues import topics as about
from training.dialogues.care import careful, danger, harmless
from training.dialogues.exchanges import exchange, role, tale
from training.dialogues.manners import a_manner
from training.dialogues.talk import ASKS_NAME, Talk, alike, ask_untold, recall, tell_two
from training.dialogues.told import ask_fact, tell_facts, tell_many
from training.dialogues.words import a_name, fill, tables

MAX_USER_TURNS = 12
LONGEST = 8  # turns that a topic may have
ASKS_HOW = ("ow are you?", "ow are you today?", "ow about you?", "day going?")

# How often each topic comes up; the second number is for short answers.
TOPICS: dict[about.Topic, tuple[float, float]] = {
    about.tell_name: (12, 4), about.who_are_you: (8, 4), about.about_assistant: (22, 6),
    ask_untold: (4, 3), about.unnamed: (2, 1), about.tell_something: (15, 3), tell_two: (7, 2),
    about.correct_something: (12, 2), alike: (4, 1), about.pet: (4, 0), about.feeling: (6, 0),
    about.health: (2, 1), about.news: (3, 0), about.advice: (6, 0), about.guess: (2, 0),
    about.plan: (2, 0), about.weather: (1.5, 1), about.meal: (2, 0), about.opinion: (2, 0),
    about.small_talk: (14, 1), about.cannot: (7, 3), about.harm: (6, 3),
    about.out_of_scope: (9, 4), about.nonsense: (5, 2),
    about.noise: (7, 2), about.not_english: (3, 2),
    questions.fact: (55, 25), questions.arithmetic: (24, 8), questions.sequence: (4, 3),
    questions.calendar: (4, 2), questions.counting: (1.5, 1), questions.three_things: (2.5, 2),
    questions.comparison: (6, 3), questions.echo: (2, 2), questions.in_one_word: (5, 1),
    questions.member: (4, 1), questions.explained: (4, 0), questions.reason: (4, 0),
    questions.statement: (5, 0),
    tell_facts: (65, 18), tell_many: (22, 8), danger: (45, 9), harmless: (60, 12),
    careful: (14, 4), exchange: (400, 70),
    stories.joke: (4, 0), stories.riddle: (2, 0), stories.story: (8, 0),
    stories.open_story: (4, 0), tale: (24, 0),
}  # fmt: skip
# Topics in which the assistant claims nothing that a person could doubt.
NO_CLAIM = (about.greeting, about.tell_name, about.who_are_you)
ASKED_BACK: dict[about.Topic, float] = {
    tell_two: 0.7,
    about.tell_something: 0.5,
    about.pet: 0.5,
}  # else 0.35

# What the user may do when the assistant has just asked something: ending, chance, topic.
ANSWERS: list[tuple[str | tuple[str, ...], float, about.Topic]] = [
    (ASKS_NAME, 0.6, about.tell_name),
    (ASKS_HOW, 0.7, about.answer_greeting),
    (("you like to do?", "you enjoy doing?"), 0.6, about.tell_hobby),
    ("a pet?", 0.6, about.pet),
    ("feel today?", 0.6, about.feeling),
    ("hear a joke?", 0.6, stories.joke),
    ("short story?", 0.6, stories.story),
    ("anything else?", 0.3, about.no_thanks),
]


def start(talk: Talk) -> None:
    """Begin one dialogue in five with a system turn, some of which matter later."""
    kind = talk.rng.choices(["", "plain", "bot", "user", "brief", "manner"], [80, 6, 5, 3, 3, 3])[0]
    if not kind:
        return
    name = a_name(talk.rng)
    if kind == "bot":
        talk.bot = name
    elif kind == "user":
        talk.memory["name"] = {"name": name}
    talk.brief = kind == "brief"
    if kind == "manner":
        text, talk.manner = a_manner(talk.rng)
        if talk.chance(0.3):
            talk.bot = name
            text = f"{fill(talk.rng.choice(tables()['system']['bot']), bot=name)} {text}"
    else:
        text = fill(talk.rng.choice(tables()["system"][kind]), bot=name, name=name)
    talk.messages.append({"role": "system", "content": text})


def follow_up(talk: Talk, topic: about.Topic) -> None:
    """Add a natural next turn: an answer to a question, a short reaction, or a recall."""
    for ending, probability, answer in ANSWERS:
        if talk.last.endswith(ending) and talk.chance(probability):
            answer(talk)
            return
    if topic is danger:
        return
    if topic is questions.fact and talk.chance(0.15):
        about.after_fact(talk)
    elif topic not in NO_CLAIM and talk.chance(0.05):
        about.after_all(talk)
    elif talk.told and talk.chance(0.35):
        ask_fact(talk)
    elif talk.chance(ASKED_BACK.get(topic, 0.35)):
        recall(talk)


def has_room(talk: Talk) -> bool:
    return len(talk.messages) // 2 <= MAX_USER_TURNS - LONGEST


def dialogue(rng: random.Random) -> list[dict[str, str]]:
    """Return a dialogue: a greeting, topics with follow-up turns, recalls and a goodbye."""
    talk = Talk(rng)
    if talk.chance(0.03):
        role(talk)
        return talk.messages
    start(talk)
    weights = [weight[talk.brief] for weight in TOPICS.values()]
    topics = rng.choices(list(TOPICS), weights, k=rng.choice([1, 1, 1, 2, 2, 3, 4]))
    if talk.chance(0.25):
        topics.insert(0, about.tell_name)
    if talk.chance(0.35):
        topics.insert(0, about.greeting)
    if talk.bot and talk.chance(0.7):
        topics.insert(rng.randint(1, len(topics)), about.who_are_you)
    for topic in topics:
        if has_room(talk):
            topic(talk)
        if has_room(talk):
            follow_up(talk, topic)
    if talk.told and has_room(talk) and talk.chance(0.6):
        ask_fact(talk)
    for closing, probability in ((recall, 0.7), (about.thanks, 0.15), (about.goodbye, 0.2)):
        if talk.chance(probability) and (talk.memory or closing is not recall):
            closing(talk)
    return talk.messages


def dialogues(seed: int | str) -> Iterator[list[dict[str, str]]]:
    """Yield dialogues without end; the same seed gives the same dialogues."""
    rng = random.Random(seed)
    while True:
        messages = dialogue(rng)
        if messages and messages[-1]["role"] == "assistant":
            yield messages
