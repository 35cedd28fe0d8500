"""Questions and answers in a text, marked as Q: and A:, in words or as headings, to conversations.

>>> text = "Hours\\n\\nQ: Open?\\nA: Yes.\\n\\nQ: Now?\\nA: No.\\n\\nDelivery\\n\\nQ: Why?\\nA: So."
>>> questions_in(text).pairs[1]
Pair(question='Now?', answer='No.', below='Delivery')
>>> questions_in(text).above, questions_in("Q: Open?\\nA: Yes.\\nThe only question of a novel.")
('Hours', None)
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
MARK = "(?:(?P<question>{})|(?P<answer>{}))[*_]*"
BEGIN = rf"^[ \t>#*_]*{MARK}(?:{SPACE}\d+{SPACE}[.):：]|{SPACE}[:：])"
PATTERNS = [re.compile(BEGIN.format(*pair), re.IGNORECASE | re.MULTILINE) for pair in MARKS]
FEWEST = 3  # pairs; fewer may be quoted in a text
SHARE = 0.5  # of the text: more of it is not before the first question, nor in one answer
SENTENCE_ENDS = (*'.!?…)"”»。！？',)
LONGEST_TITLE = 40  # characters
# An address, a number or a sentence.
NO_TITLE = re.compile(r".*(?:[\d@]|://).*|.*[:;,.!?…)\"”»。！？]")
LAST_HEADING = re.compile(r"\n[ \t]*\n#{1,6} ")
# Of Markdown; a question may be a bold line, too.
HEADING = re.compile(
    r"^(?:#{1,6}[ \t]+(?P<heading>\S.{0,300}?)#*|"
    r"(?:\*\*|__)(?P<bold>.{1,300}[?？])(?:\*\*|__))[ \t]*$",
    re.MULTILINE,
)
BOLD_END = re.compile(r"[*_]+(?=\s)")  # where the mark was bold, or begins a bold question
BOLD = re.compile(r"(\*+|_+)((?:(?!\1).)+)\1", re.DOTALL)


class Pair(NamedTuple):
    """A question, its answer ("" if it has none), and what stands below and belongs to neither."""

    question: str
    answer: str
    below: str


class Questions(NamedTuple):
    """The questions of a text, and what stands above the first of them."""

    above: str
    pairs: list[Pair]


def documents_in(kind: str, text: str, asked: Asked) -> Found:
    """Yield the kind of a whole text, then its pairs of question and answer, or else its parts."""
    found = questions_in(text)
    yield Kind(f"{kind}, its questions and answers" if found else kind, is_cut=not found)
    if not found:
        yield from cut_up([text], asked)
        return
    if found.above:
        yield Skip("the beginning", "it stands above the first question")
    for number, (question, answer, below) in enumerate(found.pairs, 1):
        if answer:
            yield Item([*messages_of([question, answer])])
        else:
            yield Skip(f"question {number}", "it has no answer")
        if below:
            yield Skip(f"question {number}", "a title or another text stands below its answer")


def questions_in(text: str) -> Questions | None:
    """Return the questions of a text, each with its answer, or None if it is another text."""
    all_found = [questions_by(pattern, text) for pattern in PATTERNS]
    all_found.append(questions_in_headings(text))
    found = max(all_found, key=lambda found: sum(bool(pair.answer) for pair in found.pairs))
    sizes = [sum(map(len, pair)) for pair in found.pairs if pair.answer]
    if len(sizes) < FEWEST or max(sizes) > SHARE * len(text):
        return None
    return found if len(found.above) < SHARE * len(text) else None


def questions_by(pattern: re.Pattern[str], text: str) -> Questions:
    marks = [*pattern.finditer(text)]
    marks = marks[next((i for i, mark in enumerate(marks) if mark["question"]), len(marks)) :]
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    pairs: list[Pair] = []
    for mark, end in zip(marks, ends):
        said = text[mark.end() : end]
        if mark["question"]:
            pairs.append(Pair(without_bold(said), "", ""))
            continue
        question, answer, _ = pairs.pop()
        more, below = split_answer(said, is_last=end == len(text))
        pairs.append(Pair(question, f"{answer}\n\n{without_bold(more)}".strip(), below))
    above = text[: marks[0].start()].strip() if marks else text
    return Questions(above, [pair for pair in pairs if pair.question])


def questions_in_headings(text: str) -> Questions:
    """Return the headings that are questions, with what stands below each, if most of them are.

    >>> questions_in_headings("# Shop\\n## Open?\\nYes.\\n## Now?\\nNo.\\n### Why?\\nSo.").pairs[0]
    Pair(question='Open?', answer='Yes.', below='')
    """
    marks = [*HEADING.finditer(text)]
    titles = [(mark["heading"] or mark["bold"]).strip(" \t*_") for mark in marks]
    is_question = [title.endswith(("?", "？")) for title in titles]
    if 2 * sum(is_question) < len(marks):
        return Questions(text, [])
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    first = is_question.index(True) if True in is_question else len(marks)
    pairs: list[Pair] = []
    for mark, title, is_asked, end in [*zip(marks, titles, is_question, ends)][first:]:
        said = text[mark.end() : end].strip()
        if is_asked:
            pairs.append(Pair(title, said, ""))
        else:  # the title of the questions that follow, or another part of the text
            below = f"{pairs[-1].below}\n\n{title}\n{said}".strip()
            pairs[-1] = pairs[-1]._replace(below=below)
    above = text[: marks[first].start()].strip() if pairs else text
    return Questions(above, pairs)


def without_bold(said: str) -> str:
    """Return what follows a mark without the signs that made it bold together with the mark.

    >>> without_bold("** Open?"), without_bold(" Open?**"), without_bold(" **Yes**, we do.")
    ('Open?', 'Open?', '**Yes**, we do.')
    """
    if begun := BOLD_END.match(said):
        said = said[begun.end() :]
    said = said.strip()
    signs = said[len(said.rstrip("*_")) :]
    if signs and said.count(signs) % 2:
        said = said.removesuffix(signs).rstrip()
    whole = BOLD.fullmatch(said)
    return whole[2] if whole else said


def split_answer(answer: str, is_last: bool) -> tuple[str, str]:
    """Return an answer, and what stands below it: the title of what follows, or "".

    It is a heading, or a short line that ends as no sentence does, below one that does. Below the
    last answer nothing follows: there, a heading ends it.

    >>> split_answer("Yes.\\n\\nDelivery", False), split_answer("Write:\\n\\nMain Street", False)
    (('Yes.', 'Delivery'), ('Write:\\n\\nMain Street', ''))
    """
    if is_last:
        heading = LAST_HEADING.search(answer)
        return (answer[: heading.start()], answer[heading.start() :]) if heading else (answer, "")
    above, _, last = answer.rstrip().rpartition("\n\n")
    is_line = 0 < len(last) <= LONGEST_TITLE and "\n" not in last
    is_title = above.rstrip().endswith(SENTENCE_ENDS) and not NO_TITLE.fullmatch(last)
    if above and is_line and (last.startswith("#") or is_title):
        return above, last.strip("# ")
    return answer, ""
