"""Topics with questions: facts, sums, the calendar, counting, lists and comparisons."""

import random
import re
import string

from training.dialogues.talk import Talk
from training.dialogues.words import a_name, fill, plural, tables

ARTICLES = ("a ", "an ")


def fact(talk: Talk) -> None:
    """Ask a question from the tables, and sometimes the same one about another thing."""
    kinds = list(tables()["facts"].values())
    table = talk.rng.choices(kinds, [kind["weight"] for kind in kinds])[0]
    pairs = table["of"] if isinstance(table["of"], dict) else dict.fromkeys(table["of"], "")
    first, second = talk.rng.sample(list(pairs), 2)
    # Where some things have an article, those without one cannot be counted.
    has_many = first.startswith(ARTICLES) or not any(x.startswith(ARTICLES) for x in pairs)
    asks = table["many" if "many" in table and has_many and talk.chance(0.3) else "ask"]
    talk.exchange(asks, table["say"], x=first, xs=plural(first), y=pairs[first])
    if "also" in table and talk.chance(0.25):
        talk.exchange(table["also"], table["say"], x=second, y=pairs[second])


def operands(rng: random.Random, kind: str) -> tuple[int, int, int]:
    """Return two numbers and their result."""
    if kind in ("times", "groups", "divided", "shared"):
        a, b = rng.randint(0 if kind == "times" else 2, 10), rng.randint(2, 10)
        return (a, b, a * b) if kind in ("times", "groups") else (a * b, b, a)
    in_figures = kind in ("plus", "minus")
    a = rng.randint(0, rng.choice([10, 20])) if in_figures else rng.randint(4, 12)
    b = rng.randint(0 if in_figures else 1, 10)
    if in_figures and rng.random() < 0.15:
        a = b
    if kind in ("plus", "more"):
        return a, b, a + b
    a, b = max(a, b) + (0 if in_figures else 2), min(a, b)
    return a, b, a - b


def arithmetic(talk: Talk) -> None:
    """Ask for a sum in figures, in words, or about things."""
    rng, table, numbers = talk.rng, tables()["sums"], tables()["numbers"]
    kind = rng.choices(list(table), [sums["weight"] for sums in table.values()])[0]
    results = operands(rng, kind)
    in_words = max(results) < len(numbers) and talk.chance(0.35)
    a_b_c = [numbers[n] if in_words else str(n) for n in results]
    slots = dict(zip("abc", a_b_c)) | {"x": rng.choice(tables()["goods"]), "name": a_name(rng)}
    says = [say for say in table[kind]["say"] if not (in_words and re.search(" [-+/x=] ", say))]
    reply = talk.pick(says, **slots)
    talk.turn(talk.pick(table[kind]["ask"], **slots), reply[0].upper() + reply[1:])
    if not in_words and talk.chance(0.2):
        go_on(talk, results[-1])


def go_on(talk: Talk, c: int) -> None:
    """Ask for another sum that begins with the result before."""
    table, b = tables()["chain"], talk.rng.randint(1, 9)
    kind = "minus" if c >= b and talk.chance(0.5) else "plus"
    d = c - b if kind == "minus" else c + b
    talk.exchange(table[kind], table[f"then_{kind}"], b=str(b), c=str(c), d=str(d))


def sequence(talk: Talk) -> None:
    """Ask for the number or letter after or before another, for odd or even, double or half."""
    rng, table = talk.rng, tables()["sequence"]
    kind = rng.choice(["after", "after", "before", "parity", "double", "half", "letter"])
    n = rng.randint(1, 10 if kind == "double" else 30)
    if kind in ("after", "before"):
        c = n + 1 if kind == "after" else n - 1
        talk.exchange(table[kind], table["say"], a=str(n), c=str(c), word=kind)
    elif kind == "parity":
        talk.exchange(table["parity"], table["is"], a=str(n), kind="odd" if n % 2 else "even")
    elif kind == "double":
        talk.exchange(table["double"], table["twice"], a=str(n), c=str(2 * n))
    elif kind == "half":
        talk.exchange(table["half"], table["halved"], a=str(2 * (n % 11)), c=str(n % 11))
    else:
        i = rng.randrange(25)
        letter, following = string.ascii_uppercase[i], string.ascii_uppercase[i + 1]
        talk.exchange(table["letter"], table["next"], a=letter, c=following)


def statement(talk: Talk) -> None:
    """Let the user state a fact, and then doubt it or ask for its reason."""
    rng, table, facts = talk.rng, tables()["statement"], tables()["facts"]
    because = [text for text in facts["why"]["of"].values() if " because " in text]
    true, _, reason = rng.choice(because).rstrip(".").partition(" because ")
    if is_plain := talk.chance(0.5):
        kind = facts[rng.choice(["sound", "legs", "baby", "home", "eats", "opposite", "capital"])]
        x, y = rng.choice(list(kind["of"].items()))
        true = fill(kind["say"][0], x=x, y=y).rstrip(".")
    inside = true if is_name(true) else true[0].lower() + true[1:]
    before = rng.choice(table["before"])
    said = (before + inside if before else true) + ("?" if before.startswith("Did") else ".")
    talk.exchange([said], table["say"], fact=inside)
    if is_plain or talk.chance(0.3):
        if talk.chance(0.5):
            talk.exchange(table["doubt"], table["sure"], fact=inside)
    elif talk.chance(0.8):
        talk.exchange(table["why"], table["because"], reason=reason)


def is_name(text: str) -> bool:
    """Return whether a text keeps its capital letter within a sentence."""
    capitals = tables()["facts"]["capital"]["of"]
    return text.split()[0] in {"I", *(x.split()[0] for pair in capitals.items() for x in pair)}


def echo(talk: Talk) -> None:
    """Let the user ask the assistant to repeat some words, among them names."""
    words = talk.rng.sample(tables()["unknown"]["random"], talk.rng.randint(1, 4))
    if talk.chance(0.4):
        words[-1] = a_name(talk.rng)
    talk.exchange(tables()["echo"]["ask"], tables()["echo"]["say"], words=" ".join(words))


def calendar(talk: Talk) -> None:
    """Ask for the day or month before or after another."""
    table, rng = tables()["calendar"], talk.rng
    unit, step = rng.choice(["day", "day", "month"]), rng.choice([1, -1])
    names, word = tables()[f"{unit}s"], "after" if step > 0 else "before"
    i, j = rng.sample(range(len(names)), 2)
    kind, say = word, "say"
    if unit == "day" and talk.chance(0.25):
        kind, say = ("tomorrow", "next") if step > 0 else ("yesterday", "last")
    slots = {"unit": unit, "word": word}
    talk.exchange(table[kind], table[say], x=names[i], y=names[(i + step) % len(names)], **slots)
    if say == "say" and talk.chance(0.3):
        other = names[(j + step) % len(names)]
        talk.exchange(table["also"], table["say"], x=names[j], y=other, **slots)


def counting(talk: Talk) -> None:
    numbers = [str(n + 1) for n in range(talk.rng.randint(3, 12))]
    end = numbers[-1]
    if talk.chance(0.7):
        asks = ["Count to {n}.", "Can you count to {n}?", "Please count from one to {n}."]
    else:
        asks = ["Count down from {n}.", "Can you count down from {n}?"]
        numbers.reverse()
    talk.turn(talk.pick(asks, n=end), ", ".join(numbers) + ".")


def three_things(talk: Talk) -> None:
    group = talk.rng.choice(list(tables()["lists"]))
    table, (a, b, c) = tables()["templates"], talk.rng.sample(tables()["lists"][group], 3)
    say = table["three_things" if group.startswith("things") else "three"]
    talk.exchange(table["name_three"], say, x=group, l=f"{a}, {b} and {c}")


def comparison(talk: Talk) -> None:
    """Ask which of two is more, as a choice or as a yes-or-no question."""
    rng, table = talk.rng, tables()["compare"]
    scale = rng.choice(tables()["scales"])
    less, more = sorted(rng.sample(range(len(scale["order"])), 2))
    word, small, big = scale["word"], scale["order"][less], scale["order"][more]
    if talk.chance(0.6):
        less, more = sorted(rng.sample(range(1, rng.choice([20, 101, 1001])), 2))
        word, small, big = rng.choice(["bigger", "larger", "greater"]), str(less), str(more)
        if talk.chance(0.4):
            word, small, big = "smaller", big, small
    p, q = rng.sample([small, big], 2)
    asks, say = ("which", "say") if talk.chance(0.6) else ("is", "yes" if p == big else "no")
    talk.exchange(table[asks], table[say], word=word, small=small, big=big, p=p, q=q)


def in_one_word(talk: Talk) -> None:
    """Let the user ask for an answer of one word, or for yes or no."""
    rng, table = talk.rng, tables()["one_word"]
    if talk.chance(0.5):
        answer = rng.choice(["yes", "no"])
        question = rng.choice(tables()["yes_no_facts"][answer])
        if talk.chance(0.4):
            talk.turn(question, talk.pick(tables()["yes_no_say"][answer]))
        else:
            talk.turn(talk.pick(table["yes_no"], q=question), f"{answer.capitalize()}.")
        return
    fact = tables()["facts"][rng.choice(["capital", "opposite", "color", "plural", "past"])]
    x, y = rng.choice([(x, y) for x, y in fact["of"].items() if " " not in y])
    question = talk.pick([ask for ask in fact["ask"] if ask.endswith("?")], x=x)
    talk.exchange(table[rng.choice(["before", "after"])], ["{Y}."], q=question, y=y)


def member(talk: Talk) -> None:
    """Ask for an example of a property; then for another, or for one of another property."""
    rng, table = talk.rng, tables()["members"]
    family = rng.choice(table["of"])
    prop, other = rng.sample(list(family["of"]), 2)
    x, *others = rng.sample(family["of"][prop], min(2, len(family["of"][prop])))
    names = "you" in (prop[:3], other[:3])  # "a book you can read" is no sentence
    says = ["{A_x}."] if names else table["say"]
    asks = [ask for ask in table["ask"] if not (names and ask.startswith("Which"))]
    slots = {"group": family["group"], "prop": prop}
    talk.exchange(asks, says, x=x, **slots)
    if others and talk.chance(0.3):
        talk.exchange(table["another"], says, x=others[0], **slots)
    elif talk.chance(0.3):
        slots["prop"] = other
        talk.exchange(table["also"], says, x=rng.choice(family["of"][other]), **slots)


def explained(talk: Talk) -> None:
    """Ask what something is, and then for more about it."""
    x, first, second = talk.rng.choice(tables()["explained"])
    talk.exchange(tables()["explain"]["ask"], [first], x=x)
    if talk.chance(0.7):
        talk.exchange(tables()["explain"]["more"], [second], x=x)


def reason(talk: Talk) -> None:
    """Ask a question, and then for the reason of the answer."""
    question, answer, because = talk.rng.choice(tables()["reasons"])
    talk.turn(question, answer)
    if talk.chance(0.8):
        talk.turn(talk.pick(tables()["why"]), because)
