"""Subtitles in SubRip's form, the web's or YouTube's, to what is said in them.

>>> words_in("- MARCO: Hello"), words_in("At 10: here"), words_in("[door bell rings]")
('- Hello', 'At 10: here', '')
"""

import html
import re
from itertools import groupby

from training.formats.found import Asked, Found, Kind, NoText
from training.formats.kinds import TIMES
from training.formats.lines import characters, open_text, whole
from training.formats.places import File
from training.formats.texts import cut_up

# What is not said in the web's subtitles, where a block begins: the head, a note or a style, up to
# the end of the block or to a time; and the name of a cue.
UNSAID = re.compile(
    r"(?:\A|(?<=\n\n))(?:(?:WEBVTT|NOTE|STYLE|REGION)\b.*\n?(?:(?!.*-->).+\n?)*|"
    rf".+\n(?={TIMES}))"
)
CUE = re.compile(rf"^{TIMES}", re.MULTILINE)
WORD_TIME = re.compile(r"<[\d:.]+>")  # where they roll, a line or two at a time
BREAK = re.compile(r"\[br\]|<br ?/?>")  # between two lines, in YouTube's .sbv and elsewhere
STYLE = re.compile(
    rf"</?(?:[biucv]|font|lang|ruby|rt)(?:[ .][^<>\n]*)?>|\{{\\[^{{}}\n]*\}}|{WORD_TIME.pattern}"
)
# A line without words, such as [door closes] or ♪ a song ♪, and the name of whoever speaks.
NO_WORDS = re.compile(r"[-–>\s]*(?:\[[^\[\]]*\]|♪.*♪|[♪♫]+)?")
SPEAKER = re.compile(r"([-–>\s]*)([^:\n]{2,30}): ?(?!\d)")


def read_subtitles(file: File, asked: Asked) -> Found:
    """Yield the lines that are spoken, without times, colours, sounds and names of speakers."""
    yield Kind("subtitles, without their times", is_cut=True)
    with open_text(file) as stream:
        text = whole(characters(stream), "subtitles")
    is_rolling = WORD_TIME.search(text)
    if text.startswith("WEBVTT"):
        text = UNSAID.sub("", text)
    spoken = html.unescape(CUE.sub("\n", BREAK.sub("\n", STYLE.sub("", text))))
    lines = [said for line in spoken.splitlines() if (said := words_in(line.strip()))]
    if not lines:
        raise NoText("it is subtitles in which nobody speaks")
    if is_rolling:  # such a line is there again until the next one is whole
        lines = [line for line, _ in groupby(lines)]
    yield from cut_up(["\n".join(lines)], asked)


def words_in(line: str) -> str:
    """Return what is said in a line, which may begin with a name and be a sound or a song alone."""
    speaker = SPEAKER.match(line)
    if speaker and speaker[2].isupper():
        line = speaker[1] + line[speaker.end() :]
    return "" if NO_WORDS.fullmatch(line) else line
