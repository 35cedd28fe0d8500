"""Short exchanges that need no state: what a person says in the first minute, and feelings.

`exchanges/*.txt` has one in each paragraph: lines of wordings with bars between them, in turns of
the user (U) and the assistant (A). Each reply fits every wording before it.

>>> import random
>>> talk = Talk(random.Random(1))
>>> exchange(talk)
>>> talk.messages[0]["role"]
'user'
"""

from functools import cache
from pathlib import Path

from training.dialogues.talk import Talk

FOLDER = Path(__file__).parent / "exchanges"


@cache
def exchanges() -> tuple[list[list[str]], ...]:
    """Return each exchange as the wordings of its turns."""
    texts = [file.read_text("ascii").strip() for file in sorted(FOLDER.glob("*.txt"))]
    parts = [part.splitlines() for text in texts for part in text.split("\n\n")]
    return tuple([line[3:].split(" | ") for line in part] for part in parts)


def exchange(talk: Talk) -> None:
    """Add an exchange of one turn or more."""
    turns = talk.rng.choice(exchanges())
    for asks, replies in zip(turns[::2], turns[1::2]):
        talk.exchange(asks, replies)
