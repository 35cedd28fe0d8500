"""Questions and answers in a text, marked as Q: and A: or in words, to a conversation for each.

>>> pairs_in("Q: Open?\\nA: Yes.\\n\\nQ: Now?\\nA: No.\\n\\nDelivery\\n\\nQ: Why?\\nA: So.")[1]
Pair(question='Now?', answer='No.', title='Delivery')
>>> pairs_in("Q: Open?\\nA: Yes.\\nThis was the only question in a long novel.")
[]
"""

import re
from typing import NamedTuple

from gptcore.text.chat_template import messages_of
from training.formats.found import Asked, Found, Item, Kind, Skip
from training.formats.texts import cut_up

MARKS = (  # of questions and of answers
    ("question", "answer"), ("q", "a"), ("frage", "antwort"), ("f", "a"), ("question", "réponse"),
    ("q", "r"), ("pregunta", "respuesta"), ("p", "r"), ("pergunta", "resposta"),
    ("domanda", "risposta"), ("d", "r"), ("问", "答"), ("問", "答"),
)  # fmt: skip
SPACE = r"[ \t\xa0\u202f]*"
# A mark stands at the beginning of a line, may have a number, and may be a heading or bold.
MARK = "(?:(?P<question>{})|(?P<answer>{}))"
BEGIN = rf"^[ \t>#*_]*{MARK}(?:{SPACE}\d+{SPACE}[.):：]|{SPACE}[:：])"
PATTERNS = [re.compile(BEGIN.format(*pair), re.IGNORECASE | re.MULTILINE) for pair in MARKS]
FEWEST = 3  # pairs; fewer may be quoted in a text
SHARE = 0.5  # of the text: more of it is not before the first question, nor in one answer
EMPHASIS = " \t\r\n\xa0*_"
SENTENCE_ENDS = (*'.!?:;,…)"”»。！？',)
LONGEST_TITLE = 40  # characters


class Pair(NamedTuple):
    """A question, its answer ("" if it has none), and what stands below as a title of others."""

    question: str
    answer: str
    title: str


def documents_in(kind: str, text: str, asked: Asked) -> Found:
    """Yield the kind of a whole text, then its pairs of question and answer, or else its parts."""
    pairs = pairs_in(text)
    yield Kind(f"{kind}, its questions and answers" if pairs else kind, is_cut=not pairs)
    for number, (question, answer, title) in enumerate(pairs, 1):
        if answer:
            yield Item([*messages_of([question, answer])])
        else:
            yield Skip(f"question {number}", "it has no answer")
        if title:
            yield Skip(f"question {number}", "a title stands below its answer")
    if not pairs:
        yield from cut_up([text], asked)


def pairs_in(text: str) -> list[Pair]:
    """Return the questions of a text, each with its answer, or none if it is another text.

    What stands before the first one is left out.
    """
    found = (pairs_by(pattern, text) for pattern in PATTERNS)
    pairs = max(found, key=lambda pairs: sum(bool(pair.answer) for pair in pairs))
    sizes = [len(pair.question) + len(pair.answer) for pair in pairs if pair.answer]
    if len(sizes) < FEWEST or max(sizes) > SHARE * len(text):
        return []
    return pairs if text.index(pairs[0].question) < SHARE * len(text) else []


def pairs_by(pattern: re.Pattern[str], text: str) -> list[Pair]:
    marks = [*pattern.finditer(text)]
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    said = [(mark.lastgroup, text[mark.end() : end]) for mark, end in zip(marks, ends)]
    pairs = []
    for (role, question), (following, answer) in zip(said, [*said[1:], ("question", "")]):
        if role == "question" and question.strip(EMPHASIS):
            answer = answer if following == "answer" else ""
            answer, title = without_title(answer)
            pairs.append(Pair(question.strip(EMPHASIS), answer.strip(EMPHASIS), title))
    return pairs


def without_title(answer: str) -> tuple[str, str]:
    """Return an answer without the title of what follows, and that title, or "".

    It is a heading, or a short line that ends as no sentence does, below one that does.

    >>> without_title("Yes.\\n\\n## Delivery"), without_title("These:\\n\\nwheels\\n\\nbrakes")[1]
    (('Yes.', 'Delivery'), '')
    """
    above, _, last = answer.rstrip().rpartition("\n\n")
    is_line = 0 < len(last) <= LONGEST_TITLE and "\n" not in last
    is_below = above.rstrip().endswith(SENTENCE_ENDS) and not last.endswith(SENTENCE_ENDS)
    if above and is_line and (last.startswith("#") or is_below):
        return above, last.strip("# ")
    return answer, ""
