"""The project's own training corpus: simple English dialogues, made without any download.

Every topic is a small function that adds turns to a ``Talk``; what is said comes from the phrase
tables in ``dialogues.json``. Facts that the user tells are kept, and asked back some turns later.

>>> chat = next(dialogues(seed=1))
>>> chat[-1]["role"]
'assistant'
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

TABLES = json.loads(Path(__file__).with_name("dialogues.json").read_text(encoding="ascii"))
COUNTRIES, CITIES = zip(*TABLES["facts"]["capital"]["of"].items(), strict=True)
MAX_USER_TURNS = 10
LONGEST_TOPIC = 4
SIMPLE_DETAILS = {
    "home": ("place", "places"),
    "feeling": ("feeling", "feelings"),
    "hobby": ("hobby", "hobbies"),
    "work": ("work", "works"),
}
ASKS_NAME = ("What is your name?", "What should I call you?")
CONTRACTIONS = {"What is": "What's", "I am": "I'm", "It is": "It's", "do not": "don't"}
BRITISH = {"color": "colour", "favorite": "favourite"}

Slots = dict[str, str]


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def with_article(noun: str) -> str:
    """``cat`` -> ``a cat``, ``owl`` -> ``an owl``."""
    vowel = noun[0].lower() in "aeiou" and not noun.lower().startswith(("uni", "eu", "one"))
    return f"{'an' if vowel else 'a'} {noun}"


def fill(template: str, **slots: str) -> str:
    """Fill ``{x}``; ``{X}``, ``{a_x}`` and ``{A_x}`` add a capital letter and an article."""
    forms: Slots = {}
    for key, value in slots.items():
        noun = with_article(value) if value else ""
        forms |= {key: value, key.capitalize(): capitalized(value)}
        forms |= {f"a_{key}": noun, f"A_{key}": capitalized(noun)}
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
    if len(text) < 25 and rng.random() < 0.05:
        text = text.upper()
    return text


@dataclass
class Talk:
    """One dialogue in the making, with what the user has told so far."""

    rng: random.Random
    messages: list[dict[str, str]] = field(default_factory=list)
    memory: dict[str, tuple[str, Slots]] = field(default_factory=dict)
    bot: str = ""
    brief: bool = False
    recalled: int = 0  # how many messages there were after the last recall

    @property
    def name(self) -> str:
        return self.memory["name"][1]["name"] if "name" in self.memory else ""

    @property
    def last(self) -> str:
        return self.messages[-1]["content"] if self.messages else ""

    @property
    def full(self) -> bool:
        return len(self.messages) // 2 > MAX_USER_TURNS - LONGEST_TOPIC

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, phrases: list[str], **slots: str) -> str:
        """A phrase with its slots filled; the name is not asked for once it is known."""
        fitting = [p for p in phrases if not (self.name and p.endswith(ASKS_NAME))]
        return fill(self.rng.choice(fitting), **slots)

    def turn(self, user: str, assistant: str) -> None:
        if len(self.messages) < 2 and not user.startswith(("H", "Good")) and self.chance(0.1):
            user = self.pick(TABLES["offers"]["hello"]) + user
        if self.brief:
            assistant = first_sentence(assistant)
        self.messages.append({"role": "user", "content": casual(self.rng, user)})
        self.messages.append({"role": "assistant", "content": assistant})

    def exchange(self, pair: list[list[str]], **slots: str) -> None:
        """One turn from a pair of lists: what the user may say, what the assistant may answer."""
        self.turn(self.pick(pair[0], **slots), self.pick(pair[1], **slots))


Topic = Callable[[Talk], None]


def first_sentence(text: str) -> str:
    for end, mark in enumerate(text):
        if mark in ".!?" and text[end + 1 : end + 2] in ("", " ") and text[:end].count(" ") > 1:
            return text[: end + 1]
    return text


def made_up_word(rng: random.Random) -> str:
    parts = TABLES["syllables"]
    middle = rng.choice(parts["middle"]) if rng.random() < 0.4 else ""
    return rng.choice(parts["first"]) + middle + rng.choice(parts["last"])


def a_name(rng: random.Random, table: str = "names") -> str:
    return made_up_word(rng) if rng.random() < 0.35 else rng.choice(TABLES[table])


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
    slot, table = SIMPLE_DETAILS[kind]
    return {slot: rng.choice(list(TABLES[table]))}


def memory_key(kind: str, details: Slots) -> str:
    """Several pets, relatives and favorites are kept apart; of the rest there is one each."""
    part = {"pet": "pet", "relative": "person", "favorite": "thing"}.get(kind)
    return f"{kind} {details[part]}" if part else kind


def tell(talk: Talk, kind: str, details: Slots | None = None) -> Slots | None:
    """The user tells something new; None if that kind of thing is known already."""
    details, table = details or new_details(talk.rng, kind), TABLES["personal"][kind]
    key = memory_key(kind, details)
    if key in talk.memory:
        return None
    talk.memory[key] = kind, details
    favorite = kind == "favorite"
    replies = TABLES["favorites"][details["thing"]]["reply"] if favorite else table["reply"]
    talk.exchange([table["tell"], replies], **details)
    return details


def recall(talk: Talk) -> None:
    """The user asks for something told before, or for all of it."""
    if not talk.memory or talk.recalled == len(talk.messages):
        return
    if len(talk.memory) > 1 and talk.chance(0.1):
        told = [
            fill(TABLES["personal"][kind]["clause"], **slots)
            for kind, slots in talk.memory.values()
        ]
        known = ", ".join(told[:-1]) + " and " + told[-1]
        talk.turn(talk.pick(TABLES["recall_all"]["ask"]), f"You told me that {known}.")
    elif talk.name and talk.chance(0.1):
        guess = talk.name if talk.chance(0.4) else a_name(talk.rng)
        table = TABLES["confirm"]
        replies = table["yes" if guess == talk.name else "no"]
        talk.exchange([table["ask"], replies], guess=guess, name=talk.name)
    else:
        keys = list(talk.memory) + ["name"] * (3 if talk.name else 0)
        kind, details = talk.memory[talk.rng.choice(keys)]
        table = TABLES["personal"][kind]
        talk.exchange([table["ask"], table["answer"]], **details)
    talk.recalled = len(talk.messages)


def ask_untold(talk: Talk) -> None:
    """The user asks for something that was never told."""
    if not talk.memory and talk.chance(0.15):
        return talk.exchange([TABLES["recall_all"]["ask"], TABLES["recall_all"]["unknown"]])
    kind = "name" if talk.chance(0.4) else talk.rng.choice(list(TABLES["personal"]))
    details, table = new_details(talk.rng, kind), TABLES["personal"][kind]
    if memory_key(kind, details) not in talk.memory:
        talk.exchange([table["ask"], table["unknown"]], **details)
        if kind not in ("name", "feeling") and talk.chance(0.5):
            tell(talk, kind, details)


def tell_name(talk: Talk) -> None:
    name = a_name(talk.rng)
    if talk.last.endswith(ASKS_NAME):
        replies = TABLES["personal"]["name"]["reply"]
        talk.exchange([TABLES["offers"]["name"], replies], name=name)
    elif talk.name:
        talk.exchange([TABLES["correct"]["tell"], TABLES["correct"]["reply"]], name=name)
    elif talk.chance(0.15):
        table = TABLES["introduce"]
        replies = table["named" if talk.bot else "reply"]
        talk.exchange([table["tell"], replies], name=name, bot=talk.bot)
    else:
        tell(talk, "name")
        return
    talk.memory["name"] = "name", {"name": name}


def tell_something(talk: Talk) -> None:
    kinds = ["age", "home", "relative", "favorite", "favorite", "hobby", "work"]
    tell(talk, talk.rng.choice(kinds))


def tell_hobby(talk: Talk) -> None:
    tell(talk, "hobby")


def pet(talk: Talk) -> None:
    details = tell(talk, "pet")
    if details and talk.last.endswith("?"):
        table, liked = TABLES["pet_talk"], TABLES["pets"][details["pet"]]
        phrases = table["age" if "old" in talk.last else "likes"]
        details |= {"n": str(talk.rng.randint(2, 12)), "x": talk.rng.choice(liked)}
        talk.exchange([phrases, table["reply"]], **details)


def feeling(talk: Talk) -> None:
    table = TABLES["feelings"]
    name = talk.rng.choice(list(table))
    if "feeling" not in talk.memory:
        talk.memory["feeling"] = "feeling", {"feeling": name}
        talk.exchange([TABLES["personal"]["feeling"]["tell"], table[name]["ask"]], feeling=name)
        talk.exchange([table[name]["why"], table[name]["end"]])


def plan(talk: Talk) -> None:
    if details := tell(talk, "plan"):
        table = TABLES["plans"][details["plan"]]
        yes = "Yes! " if talk.last.endswith("forward to it?") else ""
        talk.turn(yes + talk.pick(table["more"]), table["end"])


# Small talk.


def from_pairs(pairs: list[list[list[str]]]) -> Topic:
    """A topic of one turn: a pair of what the user may say and what fits as an answer."""

    def topic(talk: Talk) -> None:
        talk.exchange(talk.rng.choice(pairs), last=talk.last)

    return topic


weather = from_pairs(TABLES["weather"])
cannot = from_pairs(TABLES["cannot"])
small_talk = from_pairs(TABLES["small_talk"])
answer_greeting = from_pairs(TABLES["greet"]["back"])
after_fact = from_pairs(list(TABLES["after"].values()))
no_thanks = from_pairs([TABLES["offers"]["no"]])


def greeting(talk: Talk) -> None:
    table = TABLES["greet"]
    asked = talk.chance(0.3)
    talk.exchange([table["how" if asked else "user"], table["fine" if asked else "reply"]])


def who_are_you(talk: Talk) -> None:
    table = TABLES["bot"]
    if talk.chance(0.12):
        talk.bot = a_name(talk.rng)
        talk.exchange([table["give"], table["given"]], bot=talk.bot)
    elif talk.bot and talk.chance(0.2):
        talk.exchange([["Who are you?", "Tell me about yourself."], table["who"]], bot=talk.bot)
    else:
        talk.exchange([table["ask"], table["known" if talk.bot else "none"]], bot=talk.bot)


def about_assistant(talk: Talk) -> None:
    pair = talk.rng.choice(TABLES["self"])
    if talk.bot and "Who are you?" in pair[0]:
        who_are_you(talk)
    else:
        talk.exchange(pair)


def meal(talk: Talk) -> None:
    table = TABLES["meal"]
    name = talk.rng.choice(list(table["of"]))
    x, y, z = talk.rng.sample(table["of"][name], 3)
    talk.exchange([table["ask"], table["say"]], meal=name, x=x, z=z)
    if talk.chance(0.4):
        talk.exchange(table[talk.rng.choice(["good", "bad"])], y=y)


def opinion(talk: Talk) -> None:
    table = TABLES["opinion"]
    x, z = talk.rng.sample(table["things"], 2)
    if talk.chance(0.5):
        talk.exchange([table["ask"], table["say"]], x=x)
    else:
        talk.exchange([table["two"], table["both"]], x=x, z=z)
        talk.exchange([table["pick"], table["react"]], x=talk.rng.choice([x, z]))


def courtesy(table: dict[str, list[str]]) -> Topic:
    """Thanks or goodbye, often answered with the user's name."""

    def topic(talk: Talk) -> None:
        replies = table["named" if talk.name and talk.chance(0.6) else "reply"]
        talk.exchange([table["user"], replies], name=talk.name)

    return topic


thanks = courtesy(TABLES["thanks"])
goodbye = courtesy(TABLES["bye"])


def out_of_scope(talk: Talk) -> None:
    """A question too hard for a small model; the answer says so."""
    rng, table = talk.rng, TABLES["unknown"]
    choices = ("tech", "hard", "machine", "machine2", "goods", "pain", "star", "event")
    slots = {key: rng.choice(table[key]) for key in choices}
    slots |= {"country": rng.choice(COUNTRIES), "city": rng.choice(CITIES)}
    slots |= {key: str(rng.randint(101, 9999)) for key in ("big", "big2")}
    slots |= {key: made_up_word(rng).lower() for key in ("made", "made2")}
    slots["small"] = str(rng.randint(3, 99))
    template = rng.choice(table["ask"])
    if "{pain}" in template:
        answer = talk.pick(table["medical"])
    else:
        answer = f"{talk.pick(table['polite'])} {talk.pick(table['offer'])}".strip()
    talk.turn(fill(template, **slots), answer)


def nonsense(talk: Talk) -> None:
    rng, table = talk.rng, TABLES["unknown"]
    letters = "".join(rng.choices("asdfghjklqwertzuiopxcvbnm", k=rng.randint(3, 12)))
    words = " ".join(rng.sample(table["random"], rng.randint(1, 5)))
    text = rng.choice([letters, letters[:4] * 2, words, words, rng.choice(table["noise"])])
    talk.turn(text, talk.pick(table["confused"]))


# Questions with an answer.


def fact(talk: Talk) -> None:
    """A question from the tables, and now and then the same about something else."""
    kinds = list(TABLES["facts"].values())
    table = talk.rng.choices(kinds, [kind["weight"] for kind in kinds])[0]
    pairs = table["of"] if isinstance(table["of"], dict) else dict.fromkeys(table["of"], "")
    first, second = talk.rng.sample(list(pairs), 2)
    talk.exchange([table["ask"], table["say"]], x=first, y=pairs[first])
    if "also" in table and talk.chance(0.25):
        talk.exchange([table["also"], table["say"]], x=second, y=pairs[second])


def arithmetic(talk: Talk) -> None:
    rng = talk.rng
    kind = rng.choice(["plus", "plus", "minus", "times"])
    a, b = rng.randint(0, 20 if kind != "times" else 10), rng.randint(0, 10)
    if kind == "minus":
        a, b = max(a, b), min(a, b)
    c = {"plus": a + b, "minus": a - b, "times": a * b}[kind]
    table = TABLES["sums"][kind]
    talk.exchange([table["ask"], table["say"]], a=str(a), b=str(b), c=str(c))


def calendar(talk: Talk) -> None:
    unit = talk.rng.choice(["day", "month"])
    names = TABLES[f"{unit}s"]
    i = talk.rng.randrange(len(names))
    word, j = talk.rng.choice([("after", i + 1), ("before", i - 1)])
    other = names[j % len(names)]
    talk.turn(f"What {unit} comes {word} {names[i]}?", f"{other} comes {word} {names[i]}.")


def counting(talk: Talk) -> None:
    end = talk.rng.randint(3, 12)
    numbers = [str(n) for n in range(1, end + 1)]
    if talk.chance(0.7):
        asks = ["Count to {n}.", "Can you count to {n}?", "Please count from one to {n}."]
    else:
        asks = ["Count down from {n}.", "Can you count down from {n}?"]
        numbers.reverse()
    talk.turn(talk.pick(asks, n=str(end)), ", ".join(numbers) + ".")


def three_things(talk: Talk) -> None:
    group = talk.rng.choice(list(TABLES["lists"]))
    a, b, c = talk.rng.sample(TABLES["lists"][group], 3)
    table = TABLES["templates"]
    say = table["three_things" if group.startswith("things") else "three"]
    talk.exchange([table["name_three"], say], x=group, l=f"{a}, {b} and {c}")


def comparison(talk: Talk) -> None:
    rng = talk.rng
    scale = rng.choice(TABLES["scales"])
    less, more = sorted(rng.sample(range(len(scale["order"])), 2))
    small, big = scale["order"][less], scale["order"][more]
    word = scale["word"]
    if rng.random() < 0.3:
        word, small, big = "bigger", str(rng.randint(1, 50)), str(rng.randint(51, 100))
    first, second = rng.sample([small, big], 2)
    question = rng.choice(["Which is", "What is"]) + f" {word}, {first} or {second}?"
    talk.turn(question, f"{capitalized(big)} is {word} than {small}.")


# Jokes, riddles and stories.


def joke(talk: Talk) -> None:
    table, jokes = TABLES["joke"], talk.rng.sample(TABLES["jokes"], 2)
    asks = TABLES["offers"]["yes"] if talk.last.endswith("a joke?") else table["ask"]
    talk.turn(talk.pick(asks), " ".join(jokes[0]))
    if talk.chance(0.4):
        talk.exchange(table[talk.rng.choice(["laugh", "laugh", "flat"])])
    if talk.chance(0.35):
        talk.turn(talk.pick(table["again"]), " ".join(jokes[1]))


def riddle(talk: Talk) -> None:
    table = TABLES["riddle"]
    (question, solution), (_, other) = talk.rng.sample(TABLES["riddles"], 2)
    talk.exchange([table["ask"], table["say"]], q=question)
    how = talk.rng.choice(["right", "wrong", "give_up"])
    if how == "give_up":
        talk.exchange([table["give_up"], table["told"]], x=solution)
    else:
        guess = talk.pick(table["guess"], x=solution if how == "right" else other)
        talk.turn(guess, talk.pick(table[how], x=solution))


def new_story(talk: Talk) -> tuple[str, Slots]:
    """A story from a small grammar, and the slots that questions about it need."""
    table, rng = TABLES["story"], talk.rng
    slots = {key: rng.choice(table[key]) for key in ("kind", "trait", "place", "friend")}
    slots["hero"] = a_name(rng, rng.choice(["names", "pet_names"]))
    plot = {key: fill(text, **slots) for key, text in rng.choice(table["plot"]).items()}
    slots |= plot
    ends = rng.sample(table["end"], rng.randint(1, 2))
    opening, meeting = talk.pick(table["start"], **slots), talk.pick(table["meet"], **slots)
    ending = [fill(end, **slots) for end in ends]
    return " ".join([opening, plot["problem"], meeting, plot["solve"], *ending]), slots


def story(talk: Talk) -> None:
    table = TABLES["story"]
    text, slots = new_story(talk)
    asks = table[talk.rng.choice(["ask", "ask", "ask_kind", "ask_kind", "ask_hero"])]
    if talk.last.endswith("story?"):
        asks = TABLES["offers"]["yes"]
    talk.turn(talk.pick(asks, **slots), talk.pick(table["sure"]) + text)
    quiz = [*table["quiz"], [slots["ask"], slots["answer"]]]
    for question, answer in talk.rng.sample(quiz, talk.rng.choice([0, 1, 1, 2])):
        talk.turn(fill(question, **slots), fill(answer, **slots))
    if talk.chance(0.2):
        talk.turn(*talk.rng.choice(table["praise"]))
    if talk.chance(0.1):
        talk.turn(talk.pick(table["again"]), new_story(talk)[0])


# How often each topic comes up; the second number is for short answers.

TOPICS: dict[Topic, tuple[float, float]] = {
    tell_name: (7, 4), who_are_you: (4, 4), about_assistant: (5, 4), ask_untold: (3, 3),
    tell_something: (8, 3), pet: (5, 0), feeling: (6, 0), plan: (3, 0), weather: (1.5, 1),
    meal: (2, 0), opinion: (2, 0), small_talk: (4, 1), cannot: (4, 3), out_of_scope: (6, 4),
    nonsense: (3, 2), fact: (16, 16), arithmetic: (4, 4), calendar: (1.5, 1.5), joke: (4, 0),
    riddle: (1.5, 0), story: (6, 0), counting: (1, 1), three_things: (2, 2), comparison: (2, 2),
}  # fmt: skip


def start(talk: Talk) -> None:
    """One dialogue in five has a system turn: plain, or one that matters later."""
    kind = talk.rng.choices(["", "plain", "bot", "user", "brief"], [80, 8, 6, 3, 3])[0]
    if not kind:
        return
    name = a_name(talk.rng)
    if kind == "bot":
        talk.bot = name
    elif kind == "user":
        talk.memory["name"] = "name", {"name": name}
    talk.brief = kind == "brief"
    text = fill(talk.rng.choice(TABLES["system"][kind]), bot=name, name=name)
    talk.messages.append({"role": "system", "content": text})


# What the user may do when the assistant has just asked something: ending, chance, topic.
ANSWERS: list[tuple[str | tuple[str, ...], float, Topic]] = [
    (ASKS_NAME, 0.6, tell_name),
    (("ow are you?", "ow are you today?", "ow about you?", "day going?"), 0.7, answer_greeting),
    (("like to do?", "you enjoy doing?"), 0.6, tell_hobby),
    ("a pet?", 0.6, pet),
    ("feel today?", 0.6, feeling),
    ("hear a joke?", 0.6, joke),
    ("short story?", 0.6, story),
    ("anything else?", 0.3, no_thanks),
]


def follow_up(talk: Talk, topic: Topic) -> None:
    """What naturally comes next: an answer to a question, a short reaction, or a recall."""
    for ending, probability, answer in ANSWERS:
        if talk.last.endswith(ending) and talk.chance(probability):
            return answer(talk)
    if topic is fact and talk.chance(0.15):
        after_fact(talk)
    elif talk.chance(0.35):
        recall(talk)


def dialogue(rng: random.Random) -> list[dict[str, str]]:
    """One dialogue: greeting, some topics with what follows from them, recall, goodbye."""
    talk = Talk(rng)
    start(talk)
    weights = [weight[talk.brief] for weight in TOPICS.values()]
    topics = rng.choices(list(TOPICS), weights, k=rng.choice([1, 1, 1, 2, 2, 3, 4]))
    if talk.chance(0.25):
        topics.insert(0, tell_name)
    if talk.chance(0.35):
        topics.insert(0, greeting)
    if talk.bot and talk.chance(0.7):
        topics.insert(rng.randint(1, len(topics)), who_are_you)
    for topic in topics:
        if not talk.full:
            topic(talk)
        if not talk.full:
            follow_up(talk, topic)
    for closing, probability in ((recall, 0.7), (thanks, 0.15), (goodbye, 0.2)):
        if talk.chance(probability) and (talk.memory or closing is not recall):
            closing(talk)
    return talk.messages


def dialogues(seed: int = 1) -> Iterator[list[dict[str, str]]]:
    """An endless stream of dialogues, the same for the same seed."""
    rng = random.Random(seed)
    while True:
        messages = dialogue(rng)
        if messages and messages[-1]["role"] == "assistant":
            yield messages


def main() -> None:
    parser = argparse.ArgumentParser(description="Write dialogues as JSON lines.")
    parser.add_argument("--count", type=int, default=1000, help="how many dialogues")
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same dialogues")
    arguments = parser.parse_args()
    stream = dialogues(arguments.seed)
    for _ in range(arguments.count):
        print(json.dumps({"messages": next(stream)}))


if __name__ == "__main__":
    main()
