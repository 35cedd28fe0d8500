"""Fifty stories that are asked for in many ways: do they hold what was asked, and do they end?

    python benchmarks/behaviour/stories.py models/default [--out stories.md]

A story is greedy, after one request. It holds what was asked if each asked word is in it, ends
properly if the model ends it with a mark, and repeats itself if a sentence comes twice or three
words follow each other more than three times. distinct-2 is the share of different pairs of
neighbouring words in all stories together (arXiv 1510.03055, section 5).
"""

import argparse
import re
import sys
from collections import Counter
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tqdm import tqdm

from gptcore.engine.generate import chat
from gptcore.engine.sampling import Sampling
from gptcore.model import load_model

MAX_TOKENS = 300
HEROES = ("a hedgehog", "a lighthouse keeper", "Milo", "an old dragon", "a girl and her kite")
PLACES = ("in a snowy forest", "at the harbour", "on the moon", "in a bakery", "under a bridge")
ASKS = (
    "Tell me a story about {0}.",
    "I would like a short story that happens {1}.",
    "tell a story about {0} {1}",
    "Can you make up a tale with {0}, please?",
    "story {1} pls",
    "Write a bedtime story: {0}, {1}.",
    "My daughter wants to hear something about {0}.",
    "Let's have a story. It should play {1}.",
    "Once upon a time there was {0}. Go on!",
    "Invent a funny little story with {0} {1}.",
)
LITTLE = {"a", "an", "the", "in", "at", "on", "under", "and", "her", "old"}


class Story(NamedTuple):
    """A request, the words that it asks for, and the reply."""

    request: str
    asked: list[str]
    text: str
    has_ended: bool

    @property
    def holds_what_was_asked(self) -> bool:
        said = set(words_of(self.text))
        return all({word, word + "s"} & said for word in self.asked)

    @property
    def ends_properly(self) -> bool:
        return self.has_ended and self.text.rstrip().endswith((".", "!", "?", '"'))

    @property
    def repeats_itself(self) -> bool:
        sentences = Counter(re.split(r"(?<=[.!?]) ", self.text))
        words = words_of(self.text)
        threes = Counter(zip(words, words[1:], words[2:]))
        return max(sentences.values()) > 1 or max(threes.values(), default=0) > 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--variant", help="variant of the model (the fastest)")
    parser.add_argument("--out", type=Path, help="write the stories here")
    options = parser.parse_args()
    model = load_model(options.model, variant=options.variant)
    stories = []
    for request, asked in tqdm(requests(), disable=None):
        said = [{"role": "user", "content": request}]
        pieces = list(chat(model, said, Sampling(temperature=0), MAX_TOKENS))
        text = "".join(piece.text for piece in pieces)
        stories.append(Story(request, asked, text, pieces[-1].finish == "end"))
    if options.out:
        options.out.write_text("".join(f"> {s.request}\n\n{s.text}\n\n" for s in stories))
    n = len(stories)
    pairs = Counter(pair for story in stories for pair in pairwise(words_of(story.text)))
    lengths = sorted(len(words_of(story.text)) for story in stories)
    print(f"{options.model} ({model.variant}), {n} stories")
    print(f"hold what was asked {sum(s.holds_what_was_asked for s in stories)}")
    print(f"end properly        {sum(s.ends_properly for s in stories)}")
    print(f"repeat themselves   {sum(s.repeats_itself for s in stories)}")
    print(f"different openings  {len({tuple(words_of(s.text)[:8]) for s in stories})}")
    print(f"distinct-2          {len(pairs) / max(sum(pairs.values()), 1):.2f}")
    print(f"words, median       {lengths[n // 2]}")


def requests() -> list[tuple[str, list[str]]]:
    """Return fifty requests, each with the words that it asks for."""
    found = []
    for number, (ask, hero) in enumerate(product(ASKS, HEROES)):
        place = PLACES[(number + number // 5) % len(PLACES)]
        asked = [part for slot, part in (("{0}", hero), ("{1}", place)) if slot in ask]
        words = [word for part in asked for word in words_of(part) if word not in LITTLE]
        found.append((ask.format(hero, place), words))
    return found


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


if __name__ == "__main__":
    main()
