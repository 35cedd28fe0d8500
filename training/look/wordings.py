"""Whether each answer stands with only one wording of its question, as in most tables of questions.

A small model learns a question in the words in which it stands (docs/training.md, "Other words").

>>> wordings = Wordings()
>>> for day in range(20):
...     wordings.add([
...         {"role": "user", "content": f"When does the market open on day {day}?"},
...         {"role": "assistant", "content": f"At {day} o'clock."},
...     ])
>>> wordings.line()[:48]
'20 of 20 answers stand with one wording of their'
"""

from collections import defaultdict

from training.data.corpus import MOST_ROWS, is_table
from training.data.leaks import normalised
from training.formats.found import Document

FEWEST = 10  # answers; fewer are a first try
NEARLY_ALL = 0.9  # of the answers


class Wordings:
    """Counts the wordings of each answer's question, in conversations of one exchange."""

    def __init__(self) -> None:
        self.n_exchanges = self.n_chats = 0
        self.asked: dict[str, set[str]] = defaultdict(set)  # by answer

    def add(self, document: Document) -> None:
        if isinstance(document, str):
            return  # of a book beside the table
        self.n_chats += 1
        if self.n_chats > MOST_ROWS:
            return
        turns = [message for message in document if message["role"] != "system"]
        if [turn["role"] for turn in turns] == ["user", "assistant"]:
            self.n_exchanges += 1
            question, answer = (normalised(turn["content"]) for turn in turns)
            self.asked[answer].add(question)

    def line(self) -> str:
        """Return what a person must know of a small table with one wording of everything, or ""."""
        n = sum(len(questions) == 1 for questions in self.asked.values())
        are_few = n < max(FEWEST, NEARLY_ALL * len(self.asked))
        if are_few or not is_table(self.n_exchanges, self.n_chats):
            return ""
        return (
            f"{n:,} of {len(self.asked):,} answers stand with one wording of their question: a "
            f"small model will know each question in these words alone, and invent answers to all "
            f"others; add rows that ask in other words for the same answer"
        )
