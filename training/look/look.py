"""What was found in the files of a training: kinds, documents, what is skipped and why.

>>> found = look(find_files(["chats.jsonl"]))                          # doctest: +SKIP
>>> print(found.table())                                               # doctest: +SKIP
chats.jsonl: JSON lines, 812 conversations, 1,204,118 bytes
  skipped 3: it is not JSON (Expecting value) (first: line 17)
"""

from collections import Counter
from dataclasses import dataclass, field

from gptcore.checks import UserError
from gptcore.system.wording import counted
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import cut_for, document_text
from training.data.survey import Survey, Surveyor, bytes_per_token
from training.formats.chats.transcripts import question
from training.formats.found import Asked, Document, Item, Kind, NoText, People, Skip
from training.formats.places import File
from training.formats.reading import read_files
from training.look.notices import Notices
from training.look.samples import Draw, beginning, seen, shortened
from training.look.wordings import Wordings
from training.machine.progress import progress
from training.plan.scaling import vocabulary
from training.report.findings import (
    FETCH,
    LITTLE_BYTES,
    LITTLE_PLAIN,
    OR_INIT,
    READ_MORE,
    may_be_english,
    suits_init,
)
from training.run.facts import FEW_HELD_OUT

SHOWN_FILES, SHOWN_REASONS = 20, 8  # the others are counted
N_SAMPLES = 3
LITTLE = (
    "note: {:,} bytes are little text: a model will know what they say and few other words; half a "
    "megabyte is better"
)
USUAL_SYSTEM = (
    'nearly all chats begin with the system message "{}": the model keeps it, begins every chat '
    "with it that brings no other, and may answer badly after another; whoever has the model or "
    "its page can read it"
)
SYSTEMS = (
    "the chats begin with {} different system messages: give the model one of them when you talk "
    "with it; after another one it may mix what it learned of them"
)
HELD_OUT = (
    'note: the document that begins with "{}" may be set aside to measure on, as unseen text, and '
    "is not learned then; where that matters, say the same in another one, in other words"
)
UNKNOWN_SCRIPT = (
    "note: a token of the model that it begins with holds {:.1f} bytes of this text, hardly a "
    "letter: the model may not know this language; begin with a new one, or one that knows it"
)
FEWEST_BYTES = 1.3  # of a token; English has 3.7 in the model that ships, Finnish 1.8, Russian 1.0
SHOWN_BAD = 20  # files that cannot be read; a pattern of the shell may name thousands
READ = "texts, Markdown, JSON, tables, web pages, Word, EPUB, PDF and exported chats can be read"
UNUSED_ME = "--me is not used: none of the files is an exported chat"
UNUSED_COLUMNS = "--columns is not used: none of the files is a table"
NOT_USED = Kind("not used")
EMPTY = "it holds no document"


@dataclass
class FileLook:
    """What one file holds."""

    name: str
    kind: Kind = NOT_USED
    n_texts: int = 0
    n_rows: int = 0  # texts before they were cut
    n_chats: int = 0
    n_bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    first: dict[str, str] = field(default_factory=dict)  # where each reason was met first
    people: Counter[str] = field(default_factory=Counter)  # who writes in it, if it is a chat

    @property
    def is_used(self) -> bool:
        return bool(self.n_texts + self.n_chats)

    def count(self, item: Item, n_bytes: int) -> None:
        is_text = isinstance(item.document, str)
        self.n_texts += is_text
        self.n_rows += is_text and not item.is_rest
        self.n_chats += not is_text
        self.n_bytes += n_bytes

    def tell(self, fact: Kind | People | Skip) -> None:
        """Note what kind of file it is, who writes in it, or what is skipped in it."""
        if isinstance(fact, Kind):
            self.kind = fact
        elif isinstance(fact, People):
            self.people = fact.names
        else:
            self.skipped[fact.reason] += 1
            self.first.setdefault(fact.reason, fact.where)

    def lines(self) -> list[str]:
        """Return what it holds as a line, and a line for each reason to skip something."""
        counts = ((self.n_texts, "text"), (self.n_chats, "conversation"))
        held = [counted(n, what) for n, what in counts if n]
        if self.kind.is_cut and self.n_texts > 1:
            held[0] = f"cut into {held[0]}"
        elif self.n_rows < self.n_texts:
            held[0] = f"{counted(self.n_rows, 'text')} cut into {self.n_texts:,}"
        size = [counted(self.n_bytes, "byte")] if held else []
        if not self.is_used and [*self.first.values()] in ([""], []):  # of the whole file
            return [f"{self.name}: {NOT_USED.name}: {next(iter(self.first), EMPTY)}"]
        kind = self.kind if self.is_used else NOT_USED
        lines = [f"{self.name}: {', '.join([kind.name, *held, *size])}"]
        for reason, n in self.skipped.most_common(SHOWN_REASONS):
            where = f" (first: {self.first[reason]})" if self.first[reason] else ""
            lines.append(f"  skipped {n:,}: {reason}{where}")
        if n_others := sum(self.skipped.values()) - sum(
            n for _, n in self.skipped.most_common(SHOWN_REASONS)
        ):
            lines.append(f"  skipped {n_others:,} for other reasons")
        return lines


@dataclass
class Look:
    """What all files hold."""

    files: list[FileLook]
    survey: Survey
    notices: list[str]
    samples: list[Document]  # drawn at random, each document with the same chance
    asked: Asked

    @property
    def people(self) -> list[str]:
        """Who writes in the chats."""
        return [name for name, _ in total(self.files).most_common()]

    @property
    def asking(self) -> list[str]:
        """The chats that are not used because nobody has said whose words are learned."""
        return [] if self.asked.me else [file.name for file in self.files if file.people]

    @property
    def is_little(self) -> bool:
        """Whether it is little text for a new model to learn a language from."""
        return self.survey.n_bytes < LITTLE_BYTES

    @property
    def is_chat(self) -> bool:
        """Whether there are conversations."""
        return self.survey.n_chats > 0

    @property
    def may_be_english(self) -> bool:
        """Whether it may be in the language of the model that ships."""
        return may_be_english(" ".join(self.survey.beginning))

    @property
    def suits_init(self) -> bool:
        """Whether the model that ships learns it better than a new one does."""
        return suits_init(self.is_chat, self.survey.n_bytes, self.may_be_english)

    @property
    def unused(self) -> dict[str, str]:
        """Return the files that are not used, each with the first reason."""
        unused = (file for file in self.files if not file.is_used)
        return {file.name: next(iter(file.first), EMPTY) for file in unused}

    @property
    def whys(self) -> list[str]:
        """Why files are not used: a line for each reason, with the first file that has it."""
        return whys_of([file for file in self.files if not file.is_used], self.asked)

    def table(self) -> str:
        """Return the lines of the files, and, if there are many, of the first that are used.

        Then those that are not used have a line for each reason.
        """
        if len(self.files) <= SHOWN_FILES:
            return "\n".join(line for file in self.files for line in file.lines())
        lines = [f"not used: {why}" for why in self.whys]
        used = [file for file in self.files if file.is_used]
        lines += [line for file in used[:SHOWN_FILES] for line in file.lines()]
        if others := used[SHOWN_FILES:]:
            n_skipped = sum(sum(file.skipped.values()) for file in others)
            lines.append(f"and {len(others):,} more files, in which {n_skipped:,} are skipped")
        return "\n".join(lines)

    def summary(self, tokenizer: Tokenizer | None = None, advises: bool = True) -> str:
        """Return the whole amount, what is odd, and samples with what is learned of them.

        tokenizer: the model's own, if there is a model already. advises: whether it says that
        another start is better. Raises UserError if there is no document.
        """
        self.check()
        found = self.survey
        is_new = tokenizer is None
        little = self.little(advises and is_new)
        tokenizer = tokenizer or Tokenizer.train(found.beginning, vocabulary(found.n_bytes))
        n_skipped = sum(sum(file.skipped.values()) for file in self.files if file.is_used)
        skipped = f"; {n_skipped:,} skipped" if n_skipped else ""
        n_unused = len(self.unused)
        are = "is" if n_unused == 1 else "are"
        of_files = f"{n_unused:,} of {counted(len(self.files), 'file')} {are} not used"
        n_bytes = bytes_per_token(found, tokenizer)
        n_tokens = found.n_bytes / n_bytes
        is_unknown = not is_new and n_bytes < FEWEST_BYTES
        held_out = found.only_held_out if found.n_documents - found.n_equal > 1 else None
        if held_out and len(document_text(held_out).encode()) < FEW_HELD_OUT:
            held_out = None  # it has fewer tokens than bytes, and is learned, too
        lines = [
            f"in all {counted(found.n_documents, 'document')} of "
            f"{counted(found.n_characters, 'character')}, about "
            f"{counted(rounded(n_tokens), 'token')} (pieces of words, of "
            f"{tokenizer.vocab_size:,} kinds){skipped}",
            *([f"note: {of_files}, for the reasons above"] if n_unused else []),
            *([UNKNOWN_SCRIPT.format(n_bytes)] if is_unknown else []),
            *(f"note: {notice}" for notice in self.notices),
            *([little] if self.is_little else []),
            *([HELD_OUT.format(beginning(held_out))] if held_out else []),
            "samples (⏎: a new line), of which a model learns what is between « and »:",
        ]
        lines += [f"  {seen(document)}" for document in self.samples]
        return "\n".join(lines)

    def little(self, advises: bool) -> str:
        """Return what to expect of so little text, and, if asked, what helps."""
        if self.is_chat:
            return LITTLE.format(self.survey.n_bytes) + OR_INIT * (advises and self.suits_init)
        said = f"note: {LITTLE_PLAIN.format(self.survey.n_bytes)}"
        return said + f"; {READ_MORE} helps: {FETCH[self.may_be_english]}" * advises

    def check(self) -> None:
        """Raise UserError if there is no document."""
        if not self.survey.n_documents:
            said = "; ".join(self.whys) or "the files hold none"
            raise UserError(f"no document was found: {said}")


def look(files: list[File], asked: Asked = Asked()) -> Look:
    """Read all files once and count. Raises UserError for named files that cannot be read."""
    found: list[FileLook] = []
    bad: list[UserError] = []
    surveyor, notices, draw = Surveyor(), Notices(), Draw(N_SAMPLES)
    wordings = Wordings()
    with progress(doing="looking", unit=" documents") as bar:
        for file, items in read_files(files, cut_for(files, asked)):
            one = FileLook(file.name)
            found.append(one)
            try:
                for item in items:
                    if not isinstance(item, Item):
                        one.tell(item)
                        continue
                    if bad:
                        break  # this one can be read, and the command will stop
                    bar.update()
                    one.count(item, surveyor.add(item.document))
                    notices.add(document_text(item.document))
                    draw.add(item.document)
                    if not one.people:  # who talk, and ask nothing twice
                        wordings.add(item.document)
            except UserError as error:
                bad.append(error)
    # A chat that is named is not left out in silence, packed or not; one in a folder is told of.
    named = tuple(f"{file.name}/" for file in files if file.is_named)
    waiting = [file for file in found if file.people and file.name.startswith(named)]
    bad += [UserError(why) for why in whys_of([] if asked.me else waiting, asked)]
    if bad:
        raise unreadable(bad)
    survey = surveyor.survey()
    told = []
    if asked.me and not any(file.people for file in found):
        told.append(UNUSED_ME)
    if asked.columns and all(file.kind.is_cut or file.people for file in found):
        told.append(UNUSED_COLUMNS)
    told += notices.lines(survey.n_equal)
    if survey.usual_system:
        told.append(USUAL_SYSTEM.format(shortened(survey.usual_system)))
    elif survey.n_systems > 1:
        told.append(SYSTEMS.format(f"{survey.n_systems:,}"))
    if line := wordings.line():
        told.append(line)
    return Look(found, survey, told, draw.kept, asked)


def total(files: list[FileLook]) -> Counter[str]:
    """Return who writes how much in all of them."""
    return sum((file.people for file in files), Counter[str]())


def whys_of(files: list[FileLook], asked: Asked) -> list[str]:
    """Return why these are not used: a line for each reason, with the first file that has it.

    Of equally many, chats come first, as they wait for --me; several ask in one line.
    """
    n, first = Counter[str](), dict[str, str]()
    chats = [file for file in files if file.people and not asked.me]
    question_of_all = f"they are chats of {question(total(chats))}" if len(chats) > 1 else ""
    for file in sorted(files, key=lambda file: not file.people):
        for reason, where in file.first.items():
            reason = question_of_all if file.people and question_of_all else reason
            n[reason] += 1
            first.setdefault(reason, f"{file.name}{', ' * bool(where)}{where}")
    lines = []
    for reason, n_files in n.most_common(SHOWN_REASONS):
        others = f" and {counted(n_files - 1, 'more file')}" * (n_files > 1)
        lines.append(f"{first[reason]}{others}: {reason}")
    return lines + ["and more, for other reasons"] * (len(n) > SHOWN_REASONS)


def unreadable(bad: list[UserError]) -> UserError:
    """Return one error for all files that cannot be read."""
    said = [str(error) for error in bad[:SHOWN_BAD]]
    n_others = len(bad) - SHOWN_BAD
    said += [f"{counted(n_others, 'more file')} cannot be read"] * (n_others > 0)
    if any(isinstance(error, NoText) for error in bad):
        said.append(READ)
    return UserError("; ".join(said))


def rounded(n: float) -> int:
    """Return n rounded to two significant digits."""
    digits = len(str(int(n)))
    return round(round(n), 2 - digits) if digits > 2 else round(n)
