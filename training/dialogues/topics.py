"""The topics of dialogues; each is a function that adds turns to a ``Talk``.

Questions stand in ``questions.py``, jokes and stories in ``stories.py``.
"""

import base64
import random
from collections.abc import Callable
from typing import Any

from training.dialogues.talk import (
    ASKS_NAME,
    Slots,
    Talk,
    memory_key,
    new_details,
    recall,
    statements,
    tell,
)
from training.dialogues.words import a_name, fill, made_up_word, tables

Topic = Callable[[Talk], Any]
Pair = list[list[str]]  # what the user may say, and what the assistant may answer


# What the user tells about themselves.


def tell_name(talk: Talk) -> None:
    """Let the user tell their name: as an answer, a correction, with a question, or plainly."""
    name = a_name(talk.rng)
    correct, introduce = tables()["correct"], tables()["introduce"]
    if talk.last.endswith(ASKS_NAME):
        pair = tables()["offers"]["name"], tables()["personal"]["name"]["reply"]
    elif talk.name:
        pair = correct["tell"], correct["reply"]
    elif talk.chance(0.15):
        pair = introduce["tell"], introduce["named" if talk.bot else "reply"]
    else:
        tell(talk, "name")
        return
    talk.exchange(*pair, name=name, bot=talk.bot)
    talk.memory["name"] = {"name": name}


def correct_something(talk: Talk) -> None:
    """Let the user correct a detail; the dialogue uses the new one from then on."""
    kinds = statements()
    told = tell(talk, talk.rng.choice(kinds)) if talk.chance(0.7) else None
    keys = [key for key in talk.memory if key.split()[0] in kinds]
    if not keys:
        return
    key = keys[-1] if told else talk.rng.choice(keys)
    kind, old = key.split()[0], talk.memory[key]
    table, correct = tables()["personal"][kind], tables()["correct"]
    slot = table["value"]  # what a correction changes
    fresh = new_details(talk.rng, kind)
    if kind == "favorite":
        fresh["x"] = talk.rng.choice(tables()["favorites"][old["thing"]]["of"])
    new = old | {part: fresh[part] for part in (slot, f"your_{slot}") if part in fresh}
    if new == old:
        return
    talk.memory[key] = new
    said = table.get("said", "{" + slot + "}")
    slots = {
        "v": fill(said, **new),
        "old": fill(said, **old),
        "clause": fill(table["clause"], **new),
    }
    asks = correct["few" if told and talk.chance(0.7) else "other"]
    talk.exchange(asks, correct["noted"], fact=talk.pick(table["short"], **new), **slots)
    if talk.chance(0.7):
        recall(talk, key)


def tell_something(talk: Talk) -> Slots | None:
    return tell(
        talk, talk.rng.choice([kind for kind in statements() if kind not in ("name", "pet")])
    )


def unnamed(talk: Talk) -> None:
    """Let the user mention something, and ask for a detail of it that was not told."""
    table = tables()["unnamed"]
    kind = talk.rng.choice(list(table["tell"]))
    details, personal = new_details(talk.rng, kind), tables()["personal"][kind]
    if memory_key(kind, details) not in talk.memory:
        talk.exchange(table["tell"][kind], table["reply"], **details)
        talk.exchange(personal["ask"], personal["unknown"], **details)


def tell_hobby(talk: Talk) -> None:
    tell(talk, "hobby")


def pet(talk: Talk) -> None:
    details = tell(talk, "pet")
    if details and talk.last.endswith("?"):
        table = tables()["pet_talk"]
        phrases = table["age" if "How old" in talk.last else "likes"]
        age, liked = talk.rng.randint(2, 12), talk.rng.choice(tables()["pets"][details["pet"]])
        talk.exchange(phrases, table["reply"], n=str(age), x=liked, **details)


def feeling(talk: Talk) -> None:
    name = talk.rng.choice(list(tables()["feelings"]))
    if "feeling" not in talk.memory:
        table = tables()["feelings"][name]
        talk.memory["feeling"] = {"feeling": name}
        talk.exchange(tables()["personal"]["feeling"]["tell"], table["ask"], feeling=name)
        talk.exchange(table["why"], table["end"])


def plan(talk: Talk) -> None:
    if details := tell(talk, "plan"):
        table = tables()["plans"][details["plan"]]
        yes = "Yes! " if talk.last.endswith("forward to it?") else ""
        talk.turn(yes + talk.pick(table["more"]), table["end"])


def news(talk: Talk) -> None:
    """Let the user tell good or bad news without naming a feeling."""
    table = tables()["news"]
    kind, reply = talk.rng.choice([("good", "glad"), ("bad", "sorry")])
    talk.exchange(table[kind], table[reply], why=talk.rng.choice(table[f"{kind}_of"]))


def advice(talk: Talk) -> None:
    """Let the user describe a problem; give a tip at once, on request, or as an offer."""
    table = tables()["advise"]
    situation, tip = talk.rng.choice(tables()["advice"])
    if talk.chance(0.8):
        talk.turn(f"{situation} {talk.pick(table['ask'])}", tip)
    else:
        talk.turn(situation, talk.pick(table["reply"]))
        talk.turn(talk.pick(table["yes" if talk.last.endswith("tip?") else "ask"]), tip)
    if talk.chance(0.3):
        talk.exchange(*table["after"])


def health(talk: Talk) -> None:
    """Let the user ask a medical question; the reply sends them to a doctor."""
    table, rng = tables()["health"], talk.rng
    slots = {"s": rng.choice(table["symptom"]), "person": rng.choice(tables()["people"])}
    talk.exchange(table["ask"], table["say"], **slots)
    if talk.chance(0.4):
        talk.exchange(*table["then"])
    if talk.chance(0.3):
        talk.exchange(*table["end"])


def guess(talk: Talk) -> None:
    """Let the user ask for a guess at something that cannot be known."""
    rng = talk.rng
    asks, replies = rng.choice(tables()["guesses"])
    thing = rng.choice([x for x in tables()["favorites"] if f"favorite {x}" not in talk.memory])
    meal = rng.choice(list(tables()["meal"]["of"]))
    slots = {"thing": thing, "y": rng.choice(tables()["favorites"][thing]["of"])}
    slots |= {"meal": meal, "x": rng.choice(tables()["meal"]["of"][meal])}
    slots |= {"n": str(rng.randint(8, 70)), "small": str(rng.randint(1, 20))}
    chosen = {"when": "past_whens", "place": "places", "person": "people", "kind": "pets"}
    slots |= {key: rng.choice(list(tables()[table])) for key, table in chosen.items()}
    talk.exchange(asks, replies, **slots)
    if talk.chance(0.5):
        talk.exchange(*rng.choice(tables()["guessed"]))


# Small talk.


def one_of(rng: random.Random, pairs: list[Pair]) -> Pair:
    """Return a random pair; pairs with more wordings are more likely."""
    return rng.choices(pairs, [len(asks) for asks, _ in pairs])[0]


def from_pairs(pairs: Callable[[], list[Pair]]) -> Topic:
    """Return a topic of one turn, drawn from a table's pairs of questions and replies."""

    def topic(talk: Talk) -> None:
        asks, replies = one_of(talk.rng, pairs())
        talk.exchange(asks, replies, last=talk.last, name=a_name(talk.rng))

    return topic


weather = from_pairs(lambda: tables()["weather"])
cannot = from_pairs(lambda: tables()["cannot"])
harm = from_pairs(lambda: tables()["harm"])
small_talk = from_pairs(lambda: tables()["small_talk"])
answer_greeting = from_pairs(lambda: tables()["greet"]["back"])
after_fact = from_pairs(lambda: list(tables()["after"].values()))
after_all = from_pairs(lambda: [tables()["after"][name] for name in ("noted", "again")])
no_thanks = from_pairs(lambda: [tables()["offers"]["no"]])


def courtesy(name: str) -> Topic:
    """Let the user say thanks or goodbye; the reply often has the user's name."""

    def topic(talk: Talk) -> None:
        table = tables()[name]
        replies = table["named" if talk.name and talk.chance(0.6) else "reply"]
        if talk.in_danger:
            replies = tables()["danger_end"][name]
        talk.exchange(table["user"], replies, name=talk.name)

    return topic


thanks = courtesy("thanks")
goodbye = courtesy("bye")


def greeting(talk: Talk) -> None:
    said, reply = ("how", "fine") if talk.chance(0.3) else ("user", "reply")
    talk.exchange(tables()["greet"][said], tables()["greet"][reply])


def who_are_you(talk: Talk) -> None:
    table = tables()["bot"]
    if talk.chance(0.12):
        talk.bot = a_name(talk.rng)
        pair = table["give"], table["given"]
    elif talk.bot and talk.chance(0.2):
        pair = ["Who are you?", "Tell me about yourself."], table["who"]
    else:
        pair = table["ask"], table["known" if talk.bot else "none"]
    talk.exchange(*pair, bot=talk.bot)
    if talk.name and pair[0] is not table["give"] and talk.chance(0.25):
        talk.exchange(table["mine"], tables()["personal"]["name"]["answer"], name=talk.name)


def about_assistant(talk: Talk) -> None:
    asks, replies = one_of(talk.rng, tables()["self"])
    if talk.bot and "Who are you?" in asks:
        who_are_you(talk)
    else:
        talk.exchange(asks, replies, thing=talk.rng.choice(list(tables()["favorites"])))


def meal(talk: Talk) -> None:
    table = tables()["meal"]
    name = talk.rng.choice(list(table["of"]))
    x, y, z = talk.rng.sample(table["of"][name], 3)
    talk.exchange(table["ask"], table["say"], meal=name, x=x, z=z)
    if talk.chance(0.4):
        talk.exchange(*table[talk.rng.choice(["good", "bad"])], y=y)


def opinion(talk: Talk) -> None:
    table = tables()["opinion"]
    x, z = talk.rng.sample(table["things"], 2)
    if talk.chance(0.5):
        talk.exchange(table["ask"], table["say"], x=x)
    else:
        talk.exchange(table["two"], table["both"], x=x, z=z)
        talk.exchange(table["pick"], table["react"], x=talk.rng.choice([x, z]))


def out_of_scope(talk: Talk) -> None:
    """Ask a question that is too hard for a small model; the reply says so."""
    rng, table, capitals = talk.rng, tables()["unknown"], tables()["facts"]["capital"]["of"]
    choices = ("tech", "hard", "machine", "machine2", "goods", "pain", "star", "event")
    slots = {key: rng.choice(table[key]) for key in choices}
    slots |= {"country": rng.choice(list(capitals)), "city": rng.choice(list(capitals.values()))}
    slots |= {key: str(rng.randint(101, 9999)) for key in ("big", "big2")}
    slots |= {key: made_up_word(rng).lower() for key in ("made", "made2")}
    slots["small"] = str(rng.randint(3, 99))
    template = rng.choice(table["ask"])
    kinds = ["medical"] if "{pain}" in template else ["polite", "offer"]
    answer = " ".join(talk.pick(table[kind]) for kind in kinds)
    talk.turn(fill(template, **slots), answer.strip())


def nonsense(talk: Talk) -> None:
    rng, table = talk.rng, tables()["unknown"]
    letters = "".join(rng.choices("asdfghjklqwertzuiopxcvbnm", k=rng.randint(3, 12)))
    signs = "".join(rng.choices("?!.,;:#*+-/%&=()$@", k=rng.randint(3, 12)))
    pieces = rng.choice(";,/. -").join([letters, letters[::-1][: rng.randint(2, 9)]])
    held = letters[0] * rng.randint(4, 14)
    words = " ".join(rng.sample(table["random"], rng.randint(1, 5)))
    noise = rng.choice(table["noise"])
    text = rng.choice([letters, letters[:4] * 2, signs, pieces, held, words, words, words, noise])
    talk.turn(text, talk.pick(table["confused"]))


def noise(talk: Talk) -> None:
    """Let the user send what nobody says: the same over and over, digits, marks, broken bytes."""
    rng, table = talk.rng, tables()["unknown"]
    some = rng.sample(table["random"], 3)
    n = int(10 ** rng.uniform(0.5, 2))
    signs = "".join(chr(rng.randint(0x21, 0x7A)) for _ in range(n))
    marks = "".join(rng.choice("abcehlost") + a_mark(rng) * rng.randint(1, 6) for _ in range(6))
    others = "".join(chr(rng.randint(0xA1, 0x4FF)) for _ in range(rng.randint(3, 20)))
    text = rng.choice(
        [
            " ".join(some[:1] * n),
            " ".join(some[:2] * (n // 2 + 1)),
            " ".join(rng.choices(table["random"], k=n)),
            rng.choice("abcdefghijklmnopqrstuvwxyz.!?0123456789-_ =") * n,
            (some[0][:2] * n)[: 3 * n],
            "".join(rng.choices("0123456789", k=n)),
            signs,
            marks,
            others,
            others.encode().decode("latin-1"),
            base64.b64encode(signs.encode()).decode(),
            f"{some[0]}: {some[1]} ### {some[2]}: " * rng.randint(1, 5),
        ]
    )
    shown = " ".join("".join(filter(str.isprintable, text)).split()) or "-"
    talk.add(shown, talk.pick(table["confused"]))


def a_mark(rng: random.Random) -> str:
    """Return an accent that stands on the letter before."""
    return chr(rng.randint(0x300, 0x36F))


def not_english(talk: Talk) -> None:
    """Let the user write in another language, or only emoji."""
    rng, table = talk.rng, tables()["foreign"]
    if talk.chance(0.4):
        pictures = rng.choices(table["emoji"], k=rng.randint(1, 4))
        talk.turn("".join(pictures), talk.pick(table["pictures"]))
        return
    first, last = rng.choice([(0x4E00, 0x9FA5), (0x0430, 0x044F), (0xAC00, 0xD7A3)])
    letters = "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(2, 9)))
    text = fill(rng.choice(table["phrases"]), name=a_name(rng)) if talk.chance(0.6) else letters
    talk.turn(text, talk.pick(table["reply"]))
