"""A dialogue in the making: how a turn is phrased, what the user tells, and what is asked back."""

import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

TABLES = json.loads(Path(__file__).with_name("dialogues.json").read_text(encoding="ascii"))
ASKS_NAME = ("What is your name?", "What should I call you?")
CONTRACTIONS = {"What is": "What's", "I am": "I'm", "It is": "It's", "do not": "don't"}
BRITISH = {"color": "colour", "favorite": "favourite"}

Slots = dict[str, str]


# How things are said.


def with_article(noun: str) -> str:
    """``cat`` -> ``a cat``, ``owl`` -> ``an owl``."""
    vowel = re.match(r"(?!uni|eu|one)[aeiou]", noun, re.IGNORECASE)
    return f"{'an' if vowel else 'a'} {noun}"


def fill(template: str, **slots: str) -> str:
    """Fill ``{x}``; ``{X}``, ``{a_x}`` and ``{A_x}`` add a capital letter and an article."""
    forms = slots | {f"a_{key}": with_article(value) for key, value in slots.items()}
    forms |= {key.capitalize(): text[:1].upper() + text[1:] for key, text in forms.items()}
    return template.format(**forms)


def casual(rng: random.Random, text: str) -> str:
    """The same words as people type them: contracted, in lower case, without punctuation ..."""
    for words, chance in ((CONTRACTIONS, 0.25), (BRITISH, 0.2)):
        for long, other in words.items():
            if long in text and rng.random() < chance:
                text = text.replace(long, other)
    if rng.random() < 0.5:
        return text
    if rng.random() < 0.7:
        text = text.lower()
    if rng.random() < 0.6:
        text = text.rstrip(".!?") or text
    if rng.random() < 0.5:
        text = text.replace("'", "")
    return text.upper() if len(text) < 25 and rng.random() < 0.05 else text


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends three words or more."""
    found = re.match(r".*? .*? .*?[.!?](?!\S)", text)
    return found[0] if found else text


def made_up_word(rng: random.Random) -> str:
    parts = TABLES["syllables"]
    middle = rng.choice(parts["middle"]) if rng.random() < 0.4 else ""
    return rng.choice(parts["first"]) + middle + rng.choice(parts["last"])


def a_name(rng: random.Random, table: str = "names") -> str:
    return made_up_word(rng) if rng.random() < 0.35 else rng.choice(TABLES[table])


@dataclass
class Talk:
    """One dialogue in the making, with what the user has told so far."""

    rng: random.Random
    messages: list[dict[str, str]] = field(default_factory=list)
    memory: dict[str, Slots] = field(default_factory=dict)  # the details under each memory_key
    bot: str = ""
    brief: bool = False
    recalled: int = 0  # how many messages there were after the last recall

    @property
    def name(self) -> str:
        return self.memory["name"]["name"] if "name" in self.memory else ""

    @property
    def last(self) -> str:
        return self.messages[-1]["content"] if self.messages else ""

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, phrases: list[str], **slots: str) -> str:
        """A phrase with its slots filled; the name is not asked for once it is known."""
        fitting = [p for p in phrases if not (self.name and p.endswith(ASKS_NAME))]
        return fill(self.rng.choice(fitting), **slots)

    def turn(self, user: str, assistant: str) -> None:
        if len(self.messages) < 2 and not user.startswith(("H", "Good")) and self.chance(0.1):
            user = self.pick(TABLES["offers"]["hello"]) + user
        reply = first_sentence(assistant) if self.brief else assistant
        self.messages.append({"role": "user", "content": casual(self.rng, user)})
        self.messages.append({"role": "assistant", "content": reply})

    def exchange(self, asks: list[str], replies: list[str], **slots: str) -> None:
        """One turn from what the user may say and what the assistant may answer."""
        self.turn(self.pick(asks, **slots), self.pick(replies, **slots))


# What the user tells about themselves, and what is asked back.


def new_details(rng: random.Random, kind: str) -> Slots:
    """Invented details of one kind, such as ``{"pet": "dog", "petname": "Rex"}``."""
    if kind == "name":
        return {"name": a_name(rng)}
    if kind == "age":
        return {"age": str(rng.randint(7, 80))}
    if kind == "pet":
        return {"pet": rng.choice(list(TABLES["pets"])), "petname": a_name(rng, "pet_names")}
    if kind == "relative":
        return {"person": rng.choice(TABLES["people"]), "other": a_name(rng)}
    if kind == "favorite":
        thing = rng.choice(list(TABLES["favorites"]))
        return {"thing": thing, "x": rng.choice(TABLES["favorites"][thing]["of"])}
    if kind == "plan":
        mine, when = rng.choice(list(TABLES["plans"])), rng.choice(TABLES["whens"])
        return {"plan": mine, "yours": mine.replace(" my ", " your "), "when": when}
    tables = {"home": "places", "feeling": "feelings", "hobby": "hobbies", "work": "works"}
    return {"place" if kind == "home" else kind: rng.choice(list(TABLES[tables[kind]]))}


def memory_key(kind: str, details: Slots) -> str:
    """The kind, and what tells several pets, relatives or favorites apart: ``pet dog``."""
    part = {"pet": "pet", "relative": "person", "favorite": "thing"}.get(kind)
    return f"{kind} {details[part]}" if part else kind


def tell(talk: Talk, kind: str, details: Slots | None = None) -> Slots | None:
    """The user tells something new; None if that kind of thing is known already."""
    details, table = details or new_details(talk.rng, kind), TABLES["personal"][kind]
    key = memory_key(kind, details)
    if key in talk.memory:
        return None
    talk.memory[key] = details
    replies = (TABLES["favorites"][details["thing"]] if kind == "favorite" else table)["reply"]
    talk.exchange(table["tell"], replies, **details)
    return details


def recall(talk: Talk) -> None:
    """The user asks for something told before, or for all of it."""
    if not talk.memory or talk.recalled == len(talk.messages):
        return
    phrases = {key: TABLES["personal"][key.split()[0]] for key in talk.memory}
    if len(talk.memory) > 1 and talk.chance(0.1):
        told = [fill(phrases[key]["clause"], **details) for key, details in talk.memory.items()]
        known = ", ".join(told[:-1]) + " and " + told[-1]
        talk.turn(talk.pick(TABLES["recall_all"]["ask"]), f"You told me that {known}.")
    elif talk.name and talk.chance(0.1):
        guess = talk.name if talk.chance(0.4) else a_name(talk.rng)
        table = TABLES["confirm"]
        replies = table["yes" if guess == talk.name else "no"]
        talk.exchange(table["ask"], replies, guess=guess, name=talk.name)
    else:
        key = talk.rng.choice(list(talk.memory) + ["name"] * (3 if talk.name else 0))
        talk.exchange(phrases[key]["ask"], phrases[key]["answer"], **talk.memory[key])
    talk.recalled = len(talk.messages)


def ask_untold(talk: Talk) -> None:
    """The user asks for something that was never told."""
    personal, recall_all = TABLES["personal"], TABLES["recall_all"]
    if not talk.memory and talk.chance(0.15):
        talk.exchange(recall_all["ask"], recall_all["unknown"])
        return
    kind = "name" if talk.chance(0.4) else talk.rng.choice(list(personal))
    details = new_details(talk.rng, kind)
    if memory_key(kind, details) not in talk.memory:
        talk.exchange(personal[kind]["ask"], personal[kind]["unknown"], **details)
        if kind not in ("name", "feeling") and talk.chance(0.5):
            tell(talk, kind, details)
