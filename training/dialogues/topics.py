"""What dialogues are about: every topic is a small function that adds turns to a ``Talk``."""

from collections.abc import Callable

from training.dialogues.talk import ASKS_NAME, Slots, Talk, new_details, tell
from training.dialogues.words import TABLES, a_name, fill, made_up_word

Topic = Callable[[Talk], None]
FIXED = ("pet", "person", "thing")  # what a correction is about


# What the user tells about themselves.


def tell_name(talk: Talk) -> None:
    """The name is told as an answer, as a correction, with a question, or just so."""
    name = a_name(talk.rng)
    correct, introduce = TABLES["correct"], TABLES["introduce"]
    if talk.last.endswith(ASKS_NAME):
        pair = TABLES["offers"]["name"], TABLES["personal"]["name"]["reply"]
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
    """Something told before is told anew, and counts from then on."""
    kinds = [key for key in talk.memory if "short" in TABLES["personal"][key.split()[0]]]
    if not kinds:
        tell_something(talk)
        return
    key = talk.rng.choice(kinds)
    kind = key.split()[0]
    details = new_details(talk.rng, kind)
    details |= {part: talk.memory[key][part] for part in FIXED if part in details}
    if kind == "favorite":
        details["x"] = talk.rng.choice(TABLES["favorites"][details["thing"]]["of"])
    talk.memory[key] = details
    table, correct = TABLES["personal"][kind], TABLES["correct"]
    fact, clause = talk.pick(table["short"], **details), fill(table["clause"], **details)
    talk.exchange(correct["other"], correct["noted"], fact=fact, clause=clause)


def tell_something(talk: Talk) -> None:
    common = ["age", "home", "relative", "favorite", "favorite", "hobby", "work"]
    common += ["item", "birthday"]
    tell(talk, talk.rng.choice(common))


def tell_hobby(talk: Talk) -> None:
    tell(talk, "hobby")


def pet(talk: Talk) -> None:
    details = tell(talk, "pet")
    if details and talk.last.endswith("?"):
        table = TABLES["pet_talk"]
        phrases = table["age" if "old" in talk.last else "likes"]
        age, liked = talk.rng.randint(2, 12), talk.rng.choice(TABLES["pets"][details["pet"]])
        talk.exchange(phrases, table["reply"], n=str(age), x=liked, **details)


def feeling(talk: Talk) -> None:
    name = talk.rng.choice(list(TABLES["feelings"]))
    if "feeling" not in talk.memory:
        table = TABLES["feelings"][name]
        talk.memory["feeling"] = {"feeling": name}
        talk.exchange(TABLES["personal"]["feeling"]["tell"], table["ask"], feeling=name)
        talk.exchange(table["why"], table["end"])


def plan(talk: Talk) -> None:
    if details := tell(talk, "plan"):
        table = TABLES["plans"][details["plan"]]
        yes = "Yes! " if talk.last.endswith("forward to it?") else ""
        talk.turn(yes + talk.pick(table["more"]), table["end"])


# Small talk.


def from_pairs(pairs: list[list[list[str]]]) -> Topic:
    """A topic of one turn: a pair of what the user may say and what fits as an answer."""

    def topic(talk: Talk) -> None:
        asks, replies = talk.rng.choice(pairs)
        talk.exchange(asks, replies, last=talk.last, name=a_name(talk.rng))

    return topic


weather = from_pairs(TABLES["weather"])
cannot = from_pairs(TABLES["cannot"])
harm = from_pairs(TABLES["harm"])
small_talk = from_pairs(TABLES["small_talk"])
answer_greeting = from_pairs(TABLES["greet"]["back"])
after_fact = from_pairs(list(TABLES["after"].values()))
after_all = from_pairs([TABLES["after"][name] for name in ("okay", "wrong", "more", "again")])
no_thanks = from_pairs([TABLES["offers"]["no"]])


def courtesy(table: dict[str, list[str]]) -> Topic:
    """Thanks or goodbye, often answered with the user's name."""

    def topic(talk: Talk) -> None:
        replies = table["named" if talk.name and talk.chance(0.6) else "reply"]
        talk.exchange(table["user"], replies, name=talk.name)

    return topic


thanks = courtesy(TABLES["thanks"])
goodbye = courtesy(TABLES["bye"])


def greeting(talk: Talk) -> None:
    said, reply = ("how", "fine") if talk.chance(0.3) else ("user", "reply")
    talk.exchange(TABLES["greet"][said], TABLES["greet"][reply])


def who_are_you(talk: Talk) -> None:
    table = TABLES["bot"]
    if talk.chance(0.12):
        talk.bot = a_name(talk.rng)
        pair = table["give"], table["given"]
    elif talk.bot and talk.chance(0.2):
        pair = ["Who are you?", "Tell me about yourself."], table["who"]
    else:
        pair = table["ask"], table["known" if talk.bot else "none"]
    talk.exchange(*pair, bot=talk.bot)


def about_assistant(talk: Talk) -> None:
    asks, replies = talk.rng.choice(TABLES["self"])
    if talk.bot and "Who are you?" in asks:
        who_are_you(talk)
    else:
        talk.exchange(asks, replies, thing=talk.rng.choice(list(TABLES["favorites"])))


def meal(talk: Talk) -> None:
    table = TABLES["meal"]
    name = talk.rng.choice(list(table["of"]))
    x, y, z = talk.rng.sample(table["of"][name], 3)
    talk.exchange(table["ask"], table["say"], meal=name, x=x, z=z)
    if talk.chance(0.4):
        talk.exchange(*table[talk.rng.choice(["good", "bad"])], y=y)


def opinion(talk: Talk) -> None:
    table = TABLES["opinion"]
    x, z = talk.rng.sample(table["things"], 2)
    if talk.chance(0.5):
        talk.exchange(table["ask"], table["say"], x=x)
    else:
        talk.exchange(table["two"], table["both"], x=x, z=z)
        talk.exchange(table["pick"], table["react"], x=talk.rng.choice([x, z]))


def out_of_scope(talk: Talk) -> None:
    """A question too hard for a small model; the answer says so."""
    rng, table, capitals = talk.rng, TABLES["unknown"], TABLES["facts"]["capital"]["of"]
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
    rng, table = talk.rng, TABLES["unknown"]
    letters = "".join(rng.choices("asdfghjklqwertzuiopxcvbnm", k=rng.randint(3, 12)))
    words = " ".join(rng.sample(table["random"], rng.randint(1, 5)))
    text = rng.choice([letters, letters[:4] * 2, words, words, rng.choice(table["noise"])])
    talk.turn(text, talk.pick(table["confused"]))


def not_english(talk: Talk) -> None:
    """Another language, known or not, or nothing but little pictures."""
    rng, table = talk.rng, TABLES["foreign"]
    if talk.chance(0.4):
        pictures = rng.choices(table["emoji"], k=rng.randint(1, 4))
        talk.turn("".join(pictures), talk.pick(table["pictures"]))
        return
    first, last = rng.choice([(0x4E00, 0x9FA5), (0x0430, 0x044F), (0xAC00, 0xD7A3)])
    letters = "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(2, 9)))
    text = fill(rng.choice(table["phrases"]), name=a_name(rng)) if talk.chance(0.6) else letters
    talk.turn(text, talk.pick(table["reply"]))


# Jokes, riddles and stories.


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


def new_story(talk: Talk) -> tuple[str, Slots]:
    """A story from a small grammar, and the slots that questions about it need."""
    table, rng = TABLES["story"], talk.rng
    slots = {key: rng.choice(table[key]) for key in ("kind", "trait", "place", "friend")}
    slots["hero"] = a_name(rng, rng.choice(["names", "pet_names"]))
    slots |= {key: fill(text, **slots) for key, text in rng.choice(table["plot"]).items()}
    ends = rng.sample(table["end"], rng.randint(1, 2))
    start, meet = rng.choice(table["start"]), rng.choice(table["meet"])
    return fill(" ".join([start, "{problem}", meet, "{solve}", *ends]), **slots), slots


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
