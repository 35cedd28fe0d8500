"""Conversations about a story that the assistant has just told, with answers from its text.

>>> questions("There was a tiny girl named Lily. She smiled.", random.Random(2))[0]
('Who is the story about?', 'It is about a tiny girl named Lily.')
"""

import random
import re
from collections.abc import Iterator

from gptcore.text.chat_template import Message, messages_of
from training.data.corpus import Document, document_number

HERO = re.compile(r"\b(an?) ((?:[a-z]+,? ){0,3})([a-z]+) (?:named|called) ([A-Z][a-z]+)\b")
SUBJECT = re.compile(r"\bthere (?:was|lived) (an? [a-z ]{3,40})[.,]")
# Verbs in the past tense, and their infinitives for the questions.
DEEDS = {
    "found": "find", "saw": "see", "wanted": "want", "lost": "lose", "made": "make",
    "took": "take", "loved": "love", "liked": "like", "bought": "buy", "ate": "eat",
    "built": "build", "heard": "hear", "needed": "need", "drew": "draw", "caught": "catch",
}  # fmt: skip
DEED = re.compile(rf"\b([A-Z][a-z]+) ({'|'.join(DEEDS)}) ([a-z][^.!?,;\"]{{4,60}})[.!?]")
WHO = [
    "Who is the story about?", "Who was in the story?", "What is the story about?",
    "Who is the main character?", "Who was that story about?", "who is it about",
]  # fmt: skip
NAME = [
    "What was the name of the {kind}?", "What is the {kind}'s name?", "What was the {kind} called?",
    "what's the name of the {kind}", "Do you remember the {kind}'s name?",
]  # fmt: skip
WHAT = ["What did {name} {verb}?", "Tell me again what {name} {did}.", "what did {name} {verb}"]
END = [
    "How did the story end?", "How does it end?", "What happened at the end?",
    "what was the end of the story", "And how did it end?",
]  # fmt: skip
OPINION = [
    ("Is that story true?", "No, it is only a story."),
    ("Did that really happen?", "No, I made it up."),
    ("I liked the story.", "I'm glad that you liked it! Shall I tell you another one?"),
    ("Nice story!", "Thank you! I like to tell stories."),
]


def ask_about_story(document: Document) -> Iterator[list[Message]]:
    """Yield the conversation up to its story, with one or two questions about the story.

    Nothing is yielded if the story answers no question.
    """
    if isinstance(document, str):
        return
    place = next((i for i, message in enumerate(document) if is_story(message)), None)
    if place is None:
        return
    rng = random.Random(document_number(document))
    known = questions(document[place]["content"], rng)
    if not known:
        return
    chosen = rng.sample(known, min(len(known), rng.choice([1, 1, 2])))
    if rng.random() < 0.15:
        chosen.append(rng.choice(OPINION))
    yield [*document[: place + 1], *messages_of(text for pair in chosen for text in pair)]


def is_story(message: Message) -> bool:
    return message["role"] == "assistant" and len(message["content"]) > 300


def questions(story: str, rng: random.Random) -> list[tuple[str, str]]:
    """Return pairs of question and answer, of as many kinds as the story allows."""
    sentences = [s.strip() for s in re.split(r"(?<=[.!?])\s+", story.replace("\n", " "))]
    pairs = []
    if found := HERO.search(story):
        article, traits, kind, name = found.groups()
        pairs.append((rng.choice(WHO), f"It is about {article} {traits}{kind} named {name}."))
        pairs.append((rng.choice(NAME).format(kind=kind), f"The {kind}'s name is {name}."))
    elif found := SUBJECT.search(sentences[0]):
        pairs.append((rng.choice(WHO), f"It is about {found[1]}."))
    deeds = [match.groups() for s in sentences if (match := DEED.search(s)) and '"' not in s]
    if deeds:
        name, did, thing = rng.choice(deeds)
        if name not in ("He", "She", "They", "It", "We", "The", "But", "And", "Then"):
            question = rng.choice(WHAT).format(name=name, verb=DEEDS[did], did=did)
            pairs.append((question, f"{name} {did} {thing}."))
    if 20 < len(sentences[-1]) < 140 and '"' not in sentences[-1]:
        pairs.append((rng.choice(END), f"At the end: {sentences[-1]}"))
    return pairs
