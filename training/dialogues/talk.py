"""The state of a dialogue: its turns, what the user has told, and questions about that."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from training.dialogues.structures import Slots, Told
from training.dialogues.words import a_name, as_typed, fill, first_sentence, tables

ASKS_NAME = ("What is your name?", "What should I call you?")
NAMES = ("names", "pet_names")  # tables of names; some names are invented instead


@dataclass
class Talk:
    """A dialogue under construction, with what the user has told so far."""

    rng: random.Random
    messages: list[dict[str, str]] = field(default_factory=list)
    memory: dict[str, Slots] = field(default_factory=dict)  # the details under each memory_key
    told: list[Told] = field(default_factory=list)  # facts of the structures
    asked: set[str] = field(default_factory=set)  # the facts that were asked for already
    bot: str = ""
    brief: bool = False
    manner: Callable[[str], str] = str  # what becomes of each reply
    in_danger: bool = False  # somebody was sent to help
    last: str = ""  # the last reply, without its manner
    recalled: int = 0  # how many messages there were after the last recall

    @property
    def name(self) -> str:
        return self.memory["name"]["name"] if "name" in self.memory else ""

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, phrases: list[str], **slots: str) -> str:
        """Return a random phrase with its slots filled, without asking for a known name."""
        fitting = [p for p in phrases if not (self.name and p.endswith(ASKS_NAME))]
        return fill(self.rng.choice(fitting or phrases), **slots)

    def turn(self, user: str, assistant: str) -> None:
        if len(self.messages) < 2 and not user.startswith(("H", "Good")) and self.chance(0.1):
            user = self.pick(tables()["offers"]["hello"]) + user
        self.add(as_typed(self.rng, user), assistant)

    def add(self, user: str, assistant: str) -> None:
        """Add a user's turn as it is, and a reply in the manner of this dialogue."""
        self.last = first_sentence(assistant) if self.brief else assistant
        self.messages.append({"role": "user", "content": user})
        self.messages.append({"role": "assistant", "content": self.manner(self.last)})

    def exchange(self, asks: list[str], replies: list[str], **slots: str) -> None:
        """Add a user turn and a reply, each drawn from a list of phrases."""
        self.turn(self.pick(asks, **slots), self.pick(replies, **slots))


# What the user tells about themselves, and what is asked back.


def new_details(rng: random.Random, kind: str) -> Slots:
    """Invented details of one kind, such as ``{"pet": "dog", "petname": "Rex"}``."""
    if kind == "favorite":
        thing = rng.choice(list(tables()["favorites"]))
        return {"thing": thing, "x": rng.choice(tables()["favorites"][thing]["of"])}
    details = {
        slot: a_name(rng, table) if table in NAMES else rng.choice(list(tables()[table]))
        for slot, table in tables()["personal"][kind]["slots"].items()
    }
    return details | {
        f"your_{slot}": said.replace("my ", "your ") for slot, said in details.items()
    }


def memory_key(kind: str, details: Slots) -> str:
    """Return the key of a told detail: its kind, and which pet, relative or favorite it is."""
    part = tables()["personal"][kind].get("key")
    return f"{kind} {details[part]}" if part else kind


def tell(talk: Talk, kind: str, details: Slots | None = None) -> Slots | None:
    """Let the user tell a new detail; return its slots, or None if it is known already."""
    details, table = details or new_details(talk.rng, kind), tables()["personal"][kind]
    key = memory_key(kind, details)
    if key in talk.memory:
        return None
    talk.memory[key] = details
    replies = (tables()["favorites"][details["thing"]] if kind == "favorite" else table)["reply"]
    talk.exchange(table["tell"], replies, **details)
    return details


def statements() -> list[str]:
    """Return the kinds of details that a short statement can tell, and so correct."""
    return [kind for kind, table in tables()["personal"].items() if "short" in table]


def tell_two(talk: Talk) -> None:
    """Let the user tell two details in one sentence, perhaps with their name."""
    kinds = talk.rng.sample([kind for kind in statements() if kind != "name"], 2)
    if not talk.name and talk.chance(0.6):
        kinds[0] = "name"
    told = {kind: new_details(talk.rng, kind) for kind in kinds}
    keys = [memory_key(kind, details) for kind, details in told.items()]
    if any(key in talk.memory for key in keys):
        return
    talk.memory |= dict(zip(keys, told.values()))
    first, second = (
        talk.pick(tables()["personal"][kind]["short"], **details) for kind, details in told.items()
    )
    two = tables()["two"]
    said = talk.pick(two["join"], one=first, two=second)
    personal = tables()["personal"][kinds[1]]
    replies = tables()["favorites"][told[kinds[1]]["thing"]] if kinds[1] == "favorite" else personal
    reply = talk.pick(replies["reply"], **told[kinds[1]])
    hello = talk.pick(two["hello"], name=talk.name) if kinds[0] == "name" else ""
    talk.turn(said, hello + reply)


def recall(talk: Talk, key: str = "") -> None:
    """Let the user ask for the detail under a key, for a random one, or for all."""
    if not talk.memory or talk.recalled == len(talk.messages):
        return
    talk.recalled = len(talk.messages) + 2
    phrases = {key: tables()["personal"][key.split()[0]] for key in talk.memory}
    if not key and len(talk.memory) > 1 and talk.chance(0.1):
        told = [fill(phrases[key]["clause"], **details) for key, details in talk.memory.items()]
        known = ", ".join(told[:-1]) + " and " + told[-1]
        talk.turn(talk.pick(tables()["recall_all"]["ask"]), f"You told me that {known}.")
    elif not key and talk.name and talk.chance(0.1):
        guess = talk.name if talk.chance(0.4) else a_name(talk.rng)
        table = tables()["confirm"]
        replies = table["yes" if guess == talk.name else "no"]
        talk.exchange(table["ask"], replies, guess=guess, name=talk.name)
    else:
        key = key or talk.rng.choice(list(talk.memory) + ["name"] * (3 if talk.name else 0))
        if "more" in phrases[key] and talk.chance(0.25):
            asked, answer = talk.rng.choice(phrases[key]["more"])
            talk.exchange([asked], [answer], **talk.memory[key])
        else:
            talk.exchange(phrases[key]["ask"], phrases[key]["answer"], **talk.memory[key])


def alike(talk: Talk) -> None:
    """Let the user tell two details of a kind, such as two relatives, and ask for both."""
    kind = talk.rng.choice(list(tables()["alike"]))
    for _ in range(2):
        tell(talk, kind)
    keys = [key for key in talk.memory if key.split()[0] == kind]
    if len(keys) > 1:
        first, second = talk.rng.sample(keys, 2)
        recall(talk, first)
        answers = tables()["personal"][kind]["answer"]
        talk.exchange(tables()["alike"][kind], answers, **talk.memory[second])


def ask_untold(talk: Talk) -> None:
    """Let the user ask for a detail that was never told."""
    personal, recall_all = tables()["personal"], tables()["recall_all"]
    if not talk.memory and talk.chance(0.15):
        talk.exchange(recall_all["ask"], recall_all["unknown"])
        return
    kind = "name" if talk.chance(0.4) else talk.rng.choice(list(personal))
    details = new_details(talk.rng, kind)
    told = {key.split()[0] for key in talk.memory}
    if personal[kind].get("like", kind) in {personal[key].get("like") for key in told}:
        return
    if memory_key(kind, details) not in talk.memory and personal[kind].get("like") not in told:
        talk.exchange(personal[kind]["ask"], personal[kind]["unknown"], **details)
        if kind not in ("name", "feeling") and talk.chance(0.5):
            tell(talk, kind, details)
