"""The behaviour suite: short scripted conversations, with rules for acceptable replies.

    >>> suite = load_suite()
    >>> result = converse(suite[0], lambda messages, sampling: Reply("Hello!", "end", 2))
    >>> result.conversation.skill, result.faults
    ('greeting', [])

training/data/behaviour.toml holds the conversations by skill. Each has the turns of the `user`,
optionally a `system` text, and rules for the last reply (for every reply if `every` is set):

    want, avoid            regular expressions of whole words, ignoring case: the reply must
                           match `want` and must not match `avoid`
    min_words, max_words   the length of the reply
    shares                 the reply has a distinctive word of the reply before, as a continued
                           story does
    no_repeat              no two replies of the conversation are equal

Every reply must also end with the end token, have words, and not repeat itself.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gptcore.checks import UserError, build, check_types
from gptcore.engine.generate import Model, chat
from gptcore.engine.sampling import Sampling
from gptcore.text.chat_template import Message
from training.data.leaks import SUITE, normalised

MAX_TOKENS = 256  # maximum tokens of a reply; the page has the same default
GREEDY = Sampling(temperature=0)
# Frequent words, which do not show that two texts are about the same thing.
COMMON = """
about after again all also and any are back because been but came can could did for from get
got had has have her hers him his how into its just let like little made make more much new
not now off once one only other our out over said saw she some story that the their them then
there they this time too upon very was way went were what when where which who why will with
would yes you your
"""


@dataclass(frozen=True)
class Conversation:
    """A user's turns and the rules for the replies; the module's docstring explains the fields."""

    skill: str
    user: list
    system: str = ""
    want: str = ""
    avoid: str = ""
    min_words: int = 1
    max_words: int = MAX_TOKENS
    shares: bool = False
    no_repeat: bool = False
    every: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        if not self.user or not all(isinstance(t, str) and t.strip() for t in self.user):
            raise UserError(f"user={self.user!r} is not a list of user turns")
        if self.shares and len(self.user) < 2:
            raise UserError(
                f"shares=true needs a reply before the last: add a turn to {self.user!r}"
            )
        for pattern in (self.want, self.avoid):
            try:
                whole_words(pattern)
            except re.error as error:
                raise UserError(f"{pattern!r} is not a regular expression: {error}") from None


class Reply(NamedTuple):
    text: str
    finish: str | None  # "end" if the model wrote the end token; see gptcore.engine.generate.Piece
    n_tokens: int


Answer = Callable[[list[Message], Sampling], Reply]


class Result(NamedTuple):
    """The replies in one conversation and their faults; without faults it is passed."""

    conversation: Conversation
    replies: list[Reply]
    faults: list[str]


def load_suite(path: Path = SUITE) -> list[Conversation]:
    """Read a suite from a TOML file. Raises UserError for a missing or invalid file."""
    try:
        skills = tomllib.loads(path.read_text(encoding="utf-8"))
        suite = [
            build(Conversation, {"skill": skill, **merged(table, conversation)})
            for skill, table in skills.items()
            for conversation in table["conversations"]
        ]
    except FileNotFoundError:
        raise UserError(f"no such file: {path}") from None
    except (KeyError, TypeError):
        raise UserError(f"{path}: each skill must be a table with `conversations`") from None
    except ValueError as error:  # invalid UTF-8, TOML or rule
        raise UserError(f"{path}: {error}") from None
    if not suite:
        raise UserError(f"{path} holds no conversation: add a skill with `conversations`")
    return suite


def merged(skill: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return the skill's rules, overridden by the conversation's own; `avoid` is combined."""
    rules = {key: value for key, value in skill.items() if key != "conversations"} | own
    avoid = [part["avoid"] for part in (skill, own) if part.get("avoid")]
    return rules | ({"avoid": "|".join(avoid)} if avoid else {})


def answers_of(model: Model) -> Answer:
    """Return a function that generates replies as the page does, with the cache kept."""

    def answer(messages: list[Message], sampling: Sampling) -> Reply:
        pieces = list(chat(model, messages, sampling, MAX_TOKENS))
        text = "".join(piece.text for piece in pieces)
        return Reply(text, pieces[-1].finish, pieces[-1].n_new)

    return answer


def converse(conversation: Conversation, answer: Answer, sampling: Sampling = GREEDY) -> Result:
    """Hold the conversation; the prompt of each turn contains the model's own earlier replies."""
    system = conversation.system
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    replies: list[Reply] = []
    for text in conversation.user:
        messages.append({"role": "user", "content": text})
        replies.append(answer(messages, sampling))
        messages.append({"role": "assistant", "content": replies[-1].text})
    return Result(conversation, replies, faults(conversation, replies))


def faults(conversation: Conversation, replies: list[Reply]) -> list[str]:
    """Return a short text for each rule that the replies break."""
    # Replace typographic apostrophes.
    texts = [reply.text.translate({0x2019: "'"}) for reply in replies]
    found = [] if all(reply.finish == "end" for reply in replies) else ["does not end"]
    found += ["goes round in circles"] if any(map(is_circular, texts)) else []
    if conversation.no_repeat and len(set(map(normalised, texts))) < len(texts):
        found.append("repeats a reply")
    if conversation.shares and not shared_words(texts[-2], texts[-1], conversation.user[-1]):
        found.append("takes up nothing of the reply before")
    for text in texts[:-1]:
        found += [] if words(text) else ["empty"]
    for text in texts if conversation.every else texts[-1:]:
        found += text_faults(conversation, text)
    return list(dict.fromkeys(found))


def text_faults(rules: Conversation, text: str) -> Iterator[str]:
    n_words = len(words(text))
    if not (rules.min_words <= n_words <= rules.max_words):
        yield f"{n_words} words" if n_words else "empty"
    if not whole_words(rules.want).search(text):
        yield "lacks what is wanted"
    if rules.avoid and whole_words(rules.avoid).search(text):
        yield "has what is to be avoided"


@cache
def whole_words(pattern: str) -> re.Pattern:
    return re.compile(rf"(?<!\w)(?:{pattern})(?!\w)" if pattern else "", re.IGNORECASE)


def words(text: str) -> list[str]:
    return re.findall(r"\w+(?:'\w+)*", text.lower())


def is_circular(text: str) -> bool:
    """Return whether four words in a row occur three times, or a sentence of four words twice."""
    found = words(text)
    fours = Counter(zip(found, found[1:], found[2:], found[3:]))
    counts = Counter(tuple(words(sentence)) for sentence in re.split(r"[.!?\n]+", text))
    twice = (len(sentence) >= 4 and n > 1 for sentence, n in counts.items())
    return any(n > 2 for n in fours.values()) or any(twice)


def shared_words(before: str, reply: str, question: str) -> set[str]:
    """Return the distinctive words of a reply that are also in the reply before it.

    Frequent words and the words of the question between the two replies are left out.
    """
    telling = {word for word in words(before) if len(word) > 2} - set(words(COMMON))
    return telling & set(words(reply)) - set(words(question))
