"""Conversations in which a user asks for one of the real stories, by what is really in it.

>>> story = "Once there was a red fox named Ann. The fox found a kite. " * 4
>>> [turn["role"] for turn in next(ask_for_story(story))]
['user', 'assistant']
"""

import random
import re
from collections.abc import Iterator
from functools import cache

from gptcore.text.chat_template import Message, messages_of
from training.data.corpus import Document, document_number
from training.datasets.story_questions import HERO, is_story, questions
from training.dialogues.structures import values
from training.dialogues.words import a_name, made_up_word, with_article

LENGTH = (200, 1000)  # characters; a reply has at most 256 tokens
SHORT = 450
PLACES = (
    "park", "forest", "garden", "beach", "farm", "zoo", "sea", "river", "school", "kitchen",
    "house", "lake", "castle", "mountain", "woods", "store", "pond", "village", "field", "sky",
)  # fmt: skip
PEOPLE = ("boy", "girl", "man", "woman", "lady", "king", "queen", "prince", "princess")
VERBS = {"saw", "rose", "rake", "fan"}  # more often than things
MOODS = {
    "happy": r"\bhappy\b.*\bhappy\b", "sad": r"\bsad\b.*\b(sad|cried)\b",
    "funny": r"\blaugh.*\blaugh", "exciting": r"\badventure|\bbrave\b", "magic": r"\bmagic",
}  # fmt: skip
ASKS = [
    "Tell me a story about {x}.", "Tell me a story with {x}.", "Can you write a story about {x}?",
    "Make up a story about {x}, please.", "I want to hear a story about {x}.", "a story about {x}",
    "story with {x} please", "Please tell a story in which there is {x}.", "{X}. A story, please!",
    "Do you know a story about {x}?", "My child wants a story about {x}.", "Invent a tale of {x}.",
    "How about a bedtime story with {x}?", "Could you tell me a tale about {x}?",
    "Write something about {x}, like for children.", "I would love a story. It should have {x}.",
    "we need a story for tonight, with {x}", "Something to read, about {x}, if you can.",
    "Once more a story, but about {x}.", "Let me hear what happens to {x}.",
]  # fmt: skip
PLAIN = [
    "Tell me a story.", "Can you tell me a story?", "I'm bored, tell me a story.", "story please",
    "Do you know any stories?", "A bedtime story, please.", "Make something up for me.",
    "I can't sleep. Tell me a story?", "One story, please!", "Tell me any story you like.",
]  # fmt: skip
MOOD = ["Tell me a {m} story.", "a {m} story please", "Do you have a {m} story about {x}?",
        "I need a {m} story with {x}.", "Something {m}: a story about {x}."]  # fmt: skip
BRIEF = ["Tell me a short story about {x}.", "A short one about {x}, please.",
         "a very short story with {x}", "Keep it short: a story about {x}."]  # fmt: skip
BEGUN = [
    "Tell a story that begins like this: {first}", "Go on with this story: {first}",
    "{first} What happens next?", "Here is a beginning: {first} Please write the rest.",
    "Finish my story. {first}", "Continue: {first}", "{first} And then?",
]  # fmt: skip


def ask_for_story(document: Document) -> Iterator[list[Message]]:
    """Yield the story with a request for it, perhaps followed by a question about it."""
    story = story_of(document)
    if not (LENGTH[0] <= len(story) <= LENGTH[1]) or not story.isascii():
        return
    rng = random.Random(document_number(document))
    story = renamed(rng, story.replace("\n", " "))
    turns = request(rng, story)
    known = questions(story, rng)
    if known and rng.random() < 0.25:
        turns += rng.choice(known)
    yield messages_of(turns)


def story_of(document: Document) -> str:
    """Return the story in a document, or "" if it has none."""
    if isinstance(document, str):
        return document.strip()
    return next((message["content"] for message in document if is_story(message)), "")


def renamed(rng: random.Random, story: str) -> str:
    """Give the hero another name in most stories, because these use few names."""
    found = HERO.search(story)
    if not found or rng.random() < 0.3:
        return story
    # An invented name is no boy's and no girl's.
    name = made_up_word(rng) if found[3] in PEOPLE else a_name(rng)
    return re.sub(rf"\b{found[4]}\b", name, story)


def request(rng: random.Random, story: str) -> list[str]:
    """Return what the user asks for, and the story or its rest."""
    first, _, rest = story.partition(". ")
    chance = rng.random()
    if chance < 0.12 and 20 < len(first) < 150 and rest and '"' not in first:
        return [rng.choice(BEGUN).format(first=f"{first}."), rest]
    about = subject(rng, story)
    if not about or chance < 0.2:
        return [rng.choice(PLAIN), story]
    moods = [mood for mood, signs in MOODS.items() if re.search(signs, story, re.DOTALL)]
    if moods and chance < 0.32:
        asks, mood = MOOD, rng.choice(moods)
    else:
        asks, mood = (BRIEF if len(story) < SHORT and chance < 0.5 else ASKS), ""
    ask = rng.choice(asks).format(x=about, X=about[0].upper() + about[1:], m=mood)
    return [re.sub(r"\ba (?=[aeiou])", "an ", ask), story]


def subject(rng: random.Random, story: str) -> str:
    """Return one or two things that the story is about, or ""."""
    found = things_in(story)
    hero = HERO.search(story)
    if hero and hero[3] in found:
        found.remove(hero[3])
    parts = [
        with_article(thing) for thing in rng.sample(found, min(len(found), rng.choice([1, 2])))
    ]
    if hero and rng.random() < 0.7:
        who = f"{hero[1]} {hero[3]}"
        parts = [f"{who} named {hero[4]}" if rng.random() < 0.7 else who, *parts[:1]]
    places = [place for place in PLACES if re.search(rf"\b(in|at|to) the {place}\b", story)]
    text = " and ".join(parts[:2])
    if text and places and rng.random() < 0.3:
        text += f" in the {rng.choice(places)}".replace("in the beach", "at the beach")
    return text


def things_in(story: str) -> list[str]:
    """Return the animals and things that the story names at least twice."""
    words = re.findall(r"[a-z]+", story.lower())
    return sorted(thing for thing in things() if words.count(thing) > 1)


@cache
def things() -> frozenset[str]:
    known = values()
    kinds = ("animal", "object", "clothing", "instrument", "plant", "vehicle")
    more = {"tree", "flower", "boat", "car", "train", "cake", "bird", "fish", "star", "doll"}
    return (
        frozenset({word for kind in kinds for word in known[kind] if " " not in word} | more)
        - VERBS
    )
