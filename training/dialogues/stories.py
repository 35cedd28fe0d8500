"""Topics with jokes, riddles, and stories from a small grammar, with questions about them."""

import re

from training.dialogues.talk import Slots, Talk
from training.dialogues.words import a_name, fill, tables


def joke(talk: Talk) -> None:
    """Tell some different jokes."""
    table, (first, *more) = tables()["joke"], talk.rng.sample(tables()["jokes"], 4)
    asks = tables()["offers"]["yes"] if talk.last.endswith("a joke?") else table["ask"]
    talk.turn(talk.pick(asks), " ".join(first))
    if talk.chance(0.4):
        talk.exchange(*table[talk.rng.choice(["laugh", "laugh", "flat"])])
    for another in more:
        if talk.chance(0.5):
            break
        talk.turn(talk.pick(table["again"]), " ".join(another))


def riddle(talk: Talk) -> None:
    table = tables()["riddle"]
    (question, solution), (_, wrong) = talk.rng.sample(tables()["riddles"], 2)
    talk.exchange(table["ask"], table["say"], q=question)
    endings = [("guess", solution, "right"), ("guess", wrong, "wrong"), ("give_up", "", "told")]
    said, guess, reply = talk.rng.choice(endings)
    talk.turn(talk.pick(table[said], x=guess), talk.pick(table[reply], x=solution))


def new_slots(talk: Talk, hero: str = "") -> Slots:
    """Choose the hero, place and events of a story."""
    table, rng = tables()["story"], talk.rng
    slots = {key: rng.choice(table[key]) for key in ("kind", "place", "friend")}
    of_body = table["sizes"] if " " in slots["kind"] else []  # no small old man
    traits = [trait for trait in table["trait"] if trait not in of_body]
    slots["trait"], slots["other"] = rng.sample(traits, 2)
    slots["hero"] = hero or a_name(rng, rng.choice(["names", "pet_names"]))
    plot = rng.choice(table["plot"])
    if "thing}" in plot["problem"]:
        slots["thing"] = rng.choice(tables()["gifts"])
    return slots | {key: fill(text, **slots) for key, text in plot.items()}


def told(talk: Talk, parts: list[str], slots: Slots) -> str:
    """Return a story's sentences; the hero meets the friend after the first two parts."""
    table = tables()["story"]
    ends = talk.rng.sample(table["end"], talk.rng.randint(1, 2))
    return fill(" ".join([*parts, *ends]), meet=talk.pick(table["meet"], **slots), **slots)


def new_story(talk: Talk, hero: str = "") -> tuple[str, Slots]:
    """Return a story and the slots for questions about it."""
    slots = new_slots(talk, hero)
    start = talk.pick(tables()["story"]["start"], **slots)
    return told(talk, [start, "{problem}", "{meet}", "{solve}"], slots), slots


def open_story(talk: Talk) -> None:
    """Let the user begin a story, and the assistant end it with the same hero."""
    table, slots = tables()["story"]["open"], new_slots(talk)
    opening = talk.rng.choice(table["opening"])
    if "{hero}" not in opening:
        plots = [plot for plot in tables()["story"]["plot"] if "thing}" not in plot["problem"]]
        plot = talk.rng.choice(plots)
        slots["hero"] = f"the {slots['kind']}"
        slots |= {key: fill(text, **slots) for key, text in plot.items()}
    text = told(talk, [talk.rng.choice(table["say"])], slots)
    text = re.sub(r'(^|[.!?]"? )the ', r"\1The ", text)
    talk.turn(talk.pick(table["ask"], opening=fill(opening, **slots)), text)
    if "{hero}" in opening and talk.chance(0.5):
        talk.turn(slots["ask"], slots["answer"])


def asked(talk: Talk, slots: Slots) -> None:
    """Ask about the story that was told: its own question, and general ones."""
    quiz = [*talk.rng.sample(tables()["story"]["quiz"], 3), [slots["ask"], slots["answer"]]]
    for question, answer in talk.rng.sample(quiz, talk.rng.choice([0, 1, 1, 2])):
        talk.turn(fill(question, **slots), fill(answer, **slots))


def another_plot(talk: Talk, slots: Slots) -> Slots:
    """Continue the story with the same hero."""
    new = slots | {"thing": talk.rng.choice(tables()["gifts"])}
    plots = [plot for plot in tables()["story"]["plot"] if fill(plot["ask"], **new) != slots["ask"]]
    return {key: fill(text, **new) for key, text in talk.rng.choice(plots).items()}


def story(talk: Talk) -> None:
    table = tables()["story"]
    is_about_me = talk.name and talk.chance(0.15)
    text, slots = new_story(talk, talk.name if is_about_me else "")
    asks = table[talk.rng.choice(["ask", "ask", "ask_kind", "ask_kind", "ask_hero"])]
    if "thing" in slots and talk.chance(0.6):
        asks = table["ask_thing"]
    if is_about_me:
        asks = table["ask_me"]
    if talk.last.endswith("story?"):
        asks = tables()["offers"]["yes"]
    talk.turn(talk.pick(asks, **slots), talk.pick(table["sure"]) + text)
    if talk.chance(0.2):
        talk.exchange(
            table["next"]["ask"], table["next"]["say"], **slots | another_plot(talk, slots)
        )
        return
    asked(talk, slots)
    if talk.chance(0.2):
        talk.turn(*talk.rng.choice(table["praise"]))
    if talk.chance(0.1):
        text, slots = new_story(talk)
        talk.turn(talk.pick(table["again"]), text)
        asked(talk, slots)
