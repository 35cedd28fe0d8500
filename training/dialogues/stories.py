"""Jokes, riddles, and stories from a small grammar, with questions about them."""

import re

from training.dialogues.talk import Slots, Talk
from training.dialogues.words import TABLES, a_name, fill


def joke(talk: Talk) -> None:
    table, (first, second) = TABLES["joke"], talk.rng.sample(TABLES["jokes"], 2)
    asks = TABLES["offers"]["yes"] if talk.last.endswith("a joke?") else table["ask"]
    talk.turn(talk.pick(asks), " ".join(first))
    if talk.chance(0.4):
        talk.exchange(*table[talk.rng.choice(["laugh", "laugh", "flat"])])
    if talk.chance(0.35):
        talk.turn(talk.pick(table["again"]), " ".join(second))


def riddle(talk: Talk) -> None:
    table = TABLES["riddle"]
    (question, solution), (_, wrong) = talk.rng.sample(TABLES["riddles"], 2)
    talk.exchange(table["ask"], table["say"], q=question)
    endings = [("guess", solution, "right"), ("guess", wrong, "wrong"), ("give_up", "", "told")]
    said, guess, reply = talk.rng.choice(endings)
    talk.turn(talk.pick(table[said], x=guess), talk.pick(table[reply], x=solution))


def new_slots(talk: Talk) -> Slots:
    """Who is in a story, where, and what happens."""
    table, rng = TABLES["story"], talk.rng
    slots = {key: rng.choice(table[key]) for key in ("kind", "place", "friend")}
    of_body = table["sizes"] if " " in slots["kind"] else []  # no small old man
    traits = [trait for trait in table["trait"] if trait not in of_body]
    slots["trait"], slots["other"] = rng.sample(traits, 2)
    slots["hero"] = a_name(rng, rng.choice(["names", "pet_names"]))
    return slots | {key: fill(text, **slots) for key, text in rng.choice(table["plot"]).items()}


def told(talk: Talk, parts: list[str], slots: Slots) -> str:
    """The parts of a story and an end, with the meeting of the friend after the first two."""
    table = TABLES["story"]
    ends = talk.rng.sample(table["end"], talk.rng.randint(1, 2))
    return fill(" ".join([*parts, *ends]), meet=talk.pick(table["meet"], **slots), **slots)


def new_story(talk: Talk) -> tuple[str, Slots]:
    """A story, and the slots that questions about it need."""
    slots = new_slots(talk)
    start = talk.pick(TABLES["story"]["start"], **slots)
    return told(talk, [start, "{problem}", "{meet}", "{solve}"], slots), slots


def open_story(talk: Talk) -> None:
    """The user begins a story, and the assistant ends it with the same hero."""
    table, slots = TABLES["story"]["open"], new_slots(talk)
    opening = talk.rng.choice(table["opening"])
    if "{hero}" not in opening:
        plot = talk.rng.choice(TABLES["story"]["plot"])
        slots["hero"] = f"the {slots['kind']}"
        slots |= {key: fill(text, **slots) for key, text in plot.items()}
    text = told(talk, [talk.rng.choice(table["say"])], slots)
    text = re.sub(r'(^|[.!?]"? )the ', r"\1The ", text)
    talk.turn(talk.pick(table["ask"], opening=fill(opening, **slots)), text)


def another_plot(talk: Talk, slots: Slots) -> Slots:
    """What else happens to the same hero."""
    plots = [plot for plot in TABLES["story"]["plot"] if fill(plot["ask"], **slots) != slots["ask"]]
    return {key: fill(text, **slots) for key, text in talk.rng.choice(plots).items()}


def story(talk: Talk) -> None:
    table = TABLES["story"]
    text, slots = new_story(talk)
    asks = table[talk.rng.choice(["ask", "ask", "ask_kind", "ask_kind", "ask_hero"])]
    if talk.last.endswith("story?"):
        asks = TABLES["offers"]["yes"]
    talk.turn(talk.pick(asks, **slots), talk.pick(table["sure"]) + text)
    quiz = [*table["quiz"], [slots["ask"], slots["answer"]]]
    if talk.chance(0.2):
        talk.exchange(
            table["next"]["ask"], table["next"]["say"], **slots | another_plot(talk, slots)
        )
        return
    for question, answer in talk.rng.sample(quiz, talk.rng.choice([0, 1, 1, 2])):
        talk.turn(fill(question, **slots), fill(answer, **slots))
    if talk.chance(0.2):
        talk.turn(*talk.rng.choice(table["praise"]))
    if talk.chance(0.1):
        talk.turn(talk.pick(table["again"]), new_story(talk)[0])
