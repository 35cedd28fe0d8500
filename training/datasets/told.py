"""Conversations in which a user tells facts and asks about them later.

The facts are sentences of real texts; rules turn them round, as ELIZA did (Weizenbaum 1966).

>>> reflected("I left my keys at home.")
'you left your keys at home'
>>> fact("I have three dogs.").asked[0]
('What do I have?', 'You have three dogs.')
"""

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

from gptcore.text.chat_template import Message, messages_of
from training.data.corpus import Document, document_number
from training.datasets.story_questions import DEEDS
from training.dialogues.words import a_name

WORDS = (3, 12)
MOST_FACTS = 12  # maximum facts of one document
# Words that only the sentence before explains, or that address the other person.
UNCLEAR = re.compile(
    r"\b(it|its|that|this|they|them|their|those|these|so|there|you|your|yours|one|but|because|we|us"
    r"|story|stories)\b|, and\b|\band (i|he|she)\b",
    re.IGNORECASE,
)
# Capitalised words at the beginning of a sentence that are not names.
COMMON = re.compile(
    r"(a|after|all|an|and|another|as|at|back|both|but|can|dad|daddy|day|do|each|even|every|finally"
    r"|everybody|everyone|first|from|he|her|his|how|i|in|inside|it|just|later|many|mom|mommy|my"
    r"|next|no|now|on|once|one|other|outside|she|so|some|someone|soon|suddenly|that|the|their"
    r"|then|there|they|this|today|together|two|we|what|when|where|while|who|with|yes|you)",
    re.IGNORECASE,
)
DID = "went|was|had|gave|put|ran|got|came|held|left|felt|knew|thought|kept|sat|began|brought|won"
MINE = {
    "i": "you", "my": "your", "me": "you", "mine": "yours", "myself": "yourself", "am": "are",
    "i'm": "you are", "i've": "you have", "i'd": "you would", "i'll": "you will",
}  # fmt: skip
VERBS = (
    "have", "like", "love", "enjoy", "play", "read", "watch", "eat", "drink", "study", "teach",
    "collect", "own", "want", "need", "speak", "write", "make", "cook", "drive", "hate", "prefer",
    "miss", "sell", "build", "grow", "use", "wear", "do",
)  # fmt: skip
NUMBERS = "two|three|four|five|six|seven|eight|nine|ten|twelve|twenty"
PLACE = re.compile(
    r" ((?:in|at|on|under|near|behind|by|into|from) (?:the|a|an|his|her|my) [a-z ]+)$"
)
WILL = r"(?:am going to|want to|plan to|hope to|would like to|will) "
JUST = [
    "What did I just say?", "What did I tell you?", "What did I just tell you?",
    "Can you repeat what I said?", "Do you remember what I told you?", "What was it that I said?",
]  # fmt: skip
ABOUT = ["What did I say about {x}?", "What did I tell you about {x}?", "What about {x}?"]
HELLO = ["", "", "Hi! ", "Hello. ", "Hey! "]
BEFORE = ["", "", "", "You know, ", "By the way, ", "Well, "]
HEARD = [
    "I see, {x}.",
    "So {x}.",
    "I see! So {x}.",
    "Okay, {x}.",
    "Thank you for telling me. So {x}.",
]
THEN = ["", "", "", " Tell me more!", " What else?", " I will remember that.", " Interesting!"]
ASKING = ["", "", "", "", "So, ", "And ", "Hm, ", "One question: "]


class Fact(NamedTuple):
    """A sentence as the user says it, as the assistant repeats it, and questions with answers."""

    said: str
    known: str
    asked: list[tuple[str, str]]


def ask_facts(document: Document) -> Iterator[list[Message]]:
    """Yield short conversations, each about one to three facts of the document."""
    texts = [document] if isinstance(document, str) else [m["content"] for m in document]
    rng = random.Random(document_number(document))
    parts = (part for text in texts for part in re.split(r"(?<=[.!?])\s+", text))
    sentences = (renamed(rng, part.strip()) for part in parts)
    facts = list({found.said: found for part in sentences if (found := fact(part))}.values())
    rng.shuffle(facts)
    facts = facts[:MOST_FACTS]
    while facts:
        n = rng.choice([1, 1, 2, 2, 3])
        yield conversation(rng, facts[:n])
        facts = facts[n:]


def renamed(rng: random.Random, sentence: str) -> str:
    """Replace the name at the beginning of a sentence, because stories use few names."""
    head, _, rest = sentence.partition(" ")
    if COMMON.fullmatch(head) or not re.fullmatch(r"[A-Z][a-z]+", head) or rng.random() < 0.3:
        return sentence
    return f"{a_name(rng)} {rest}"


def conversation(rng: random.Random, facts: list[Fact]) -> list[Message]:
    turns: list[str] = []
    for each in facts:
        heard = rng.choice(HEARD).format(x=each.known) + rng.choice(THEN)
        said = led(rng.choice(BEFORE), each.said)
        turns += [as_typed(rng, said if turns else rng.choice(HELLO) + said), heard]
    for each in rng.sample(facts, min(len(facts), rng.choice([1, 1, 2]))):
        question, answer = rng.choice(each.asked)
        turns += [as_typed(rng, led(rng.choice(ASKING), question)), answer]
    return messages_of(turns)


def led(before: str, text: str) -> str:
    """Return the sentence after introductory words; a name keeps its capital letter."""
    first = text.split()[0]
    is_kept = not before or first.startswith("I") or not COMMON.fullmatch(first)
    return before + (text if is_kept else text[0].lower() + text[1:])


def as_typed(rng: random.Random, text: str) -> str:
    if rng.random() < 0.3:
        text = text.lower()
    return text.rstrip(".?") if rng.random() < 0.3 else text


def fact(sentence: str) -> Fact | None:
    """Return the fact in a sentence, or None if it is unclear alone or allows no question."""
    if not (WORDS[0] <= len(sentence.split()) <= WORDS[1]) or not re.fullmatch(
        r"[A-Z][\w' ,-]+\.", sentence
    ):
        return None
    sentence = re.sub(r",? too\.$", ".", re.sub(r"^(I|I'm|My \w+) also ", r"\1 ", sentence))
    if UNCLEAR.search(sentence):
        return None
    plain = sentence.replace("I'm ", "I am ").replace("I've ", "I have ").rstrip(".")
    asked = list(of_me(plain)) or list(of_mine(plain)) or list(of_others(plain))
    if not asked:
        return None
    known = reflected(sentence)
    if plain.startswith(("I ", "My ")):
        asked.append((JUST[len(plain) % len(JUST)], f"You told me that {known}."))
    return Fact(sentence, known, asked)


def of_me(text: str) -> Iterator[tuple[str, str]]:
    """Return questions about what the user says of themselves: "What do I have?" """
    answer = capital(reflected(text)) + "."
    perfect = r"(?!to |been|never|had|always|seen|heard|done|gone|got|\w+ed\b)"
    if found := re.fullmatch(rf"I (?:really )?({'|'.join(VERBS)}) {perfect}(.+)", text):
        verb, thing = found.groups()
        yield f"What do I {verb}?", answer
        yield f"Do I {verb} {thing}?", f"Yes, {reflected(text)}."
        if many := re.match(rf"({NUMBERS}) ([\w'-]+)", thing):
            yield f"How many {many[2]} do I {verb}?", answer
    elif found := re.fullmatch(r"I (like|love|enjoy|hate|want|need) (to .+)", text):
        yield f"What do I {found[1]} to do?", answer
        yield f"What do I {found[1]}?", answer
    elif re.match(rf"I {WILL}", text):
        yield "What am I going to do?", answer
        yield "What are my plans?", answer
    elif found := re.fullmatch(r"I (live|work) ((?:in|at|on|near|for|with) .+)", text):
        yield f"Where do I {found[1]}?", answer
        yield f"Do you remember where I {found[1]}?", answer
    elif found := re.fullmatch(r"I (?:am|work as) (an? .+)", text):
        yield "What am I?", answer
        yield "What did I say I am?", answer
    elif re.match(r"I (went|was|grew up|moved) ", text):
        yield "What did I tell you about me?", answer


def of_mine(text: str) -> Iterator[tuple[str, str]]:
    """Return questions such as "Who lives in Rome?" about "My brother lives in Rome"."""
    answer = capital(reflected(text)) + "."
    if found := re.fullmatch(r"(My (?:[a-z]+ ){1,3}?)(is|are|was|were) (.+)", text):
        thing = found[1].strip()
        thing = thing[0].lower() + thing[1:]
        yield f"What {found[2]} {thing}?", answer
        yield ABOUT[len(text) % len(ABOUT)].format(x=thing), answer
    elif found := re.fullmatch(r"(My [a-z]+) ([a-z]+s|[a-z]+ed|went|made|has) (.+)", text):
        yield f"Who {found[2]} {found[3]}?", answer
        yield ABOUT[len(text) % len(ABOUT)].format(x="my" + found[1][2:]), answer


def of_others(text: str) -> Iterator[tuple[str, str]]:
    """Return the questions who, what and where about "Tom found a ball in the park"."""
    found = re.fullmatch(rf"([A-Z][a-z]+) ({'|'.join(DEEDS)}|{DID}|[a-z]+ed) (.+)", text)
    if not found or COMMON.fullmatch(found[1]):
        return
    name, did, thing = found.groups()
    yield f"Who {did} {thing}?", f"{name} {did} {thing}."
    yield f"What did I say about {name}?", f"{name} {did} {thing}."
    if verb := DEEDS.get(did):
        yield f"What did {name} {verb}?", f"{name} {did} {thing}."
    if place := PLACE.search(f" {thing}"):
        before = thing.removesuffix(place[1]).strip()
        if verb and before:
            yield f"Where did {name} {verb} {before}?", f"{capital(place[1])}."
        elif did == "was":
            yield f"Where was {name}?", f"{name} was {thing}."
    elif did == "was":
        yield f"How was {name}?", f"{name} was {thing}."


def reflected(text: str) -> str:
    """Turn the first person into the second: "I lost my key" into "you lost your key"."""
    # A hyphen belongs to the word, so that "I-beam" stays unchanged.
    text = re.sub(r"[\w'-]+", lambda word: MINE.get(word[0].lower(), word[0]), text.rstrip("."))
    return re.sub(r"\byou was\b", "you were", text)


def capital(text: str) -> str:
    return text[0].upper() + text[1:]
