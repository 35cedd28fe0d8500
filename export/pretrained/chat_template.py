"""Reads a Hugging Face chat template as a ChatFormat: the strings around each message.

A template is a program. It is run on conversations whose texts are marks; the strings between
the marks are the format. The format must then give the same text for longer conversations. The
template comes from somebody else: it runs in a process of its own, with little time and memory.

    >>> turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    >>> opened = "{% if add_generation_prompt %}<assistant>{% endif %}"
    >>> read_format(turns + opened, {}, text="").user
    ('<user>', '</s>')
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from pathlib import Path

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gptcore.checks import UserError, shorten
from gptcore.text.chat_format import ChatFormat
from gptcore.typed_json import read_as

SHAPES = ("u", "su", "uau", "suau", "uauau")
ROLES = {"s": "system", "u": "user", "a": "assistant"}
# Texts of conversations: with white space around, without, and with what was thought aloud.
MARK, BARE, THOUGHT = " \nmark{} ", "mark{}", " \n<think>a</think> b{} "
SECONDS = 10  # for a template, most of them for the start of its process
BYTES = 2**30
TOO_MUCH = 3  # the exit status for a template that needs more; Python's own are 1 and 2
Render = Callable[..., str]  # takes a conversation's shape, and whether to open the next reply


def read_format(template: str, names: dict[str, str], text: str) -> ChatFormat:
    """Return the format; `names`: bos_token and other variables; `text` opens a plain text.

    Raises UserError if the template does more than write one message after the other.
    """
    program = [sys.executable, "-m", "export.pretrained.chat_template"]
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    try:
        ended = subprocess.run(
            program,
            input=json.dumps([template, names, text]),
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"the chat_template did not end within {SECONDS} s; {REMEDY}") from None
    if ended.returncode == TOO_MUCH:
        raise UserError(f"the chat_template needs too much memory; {REMEDY}")
    if ended.returncode:
        said = (ended.stderr.strip().splitlines() or [f"status {ended.returncode}"])[-1]
        raise UserError(f"the chat_template could not be run ({shorten(said, 200)}); {REMEDY}")
    found = json.loads(ended.stdout)
    if "error" in found:
        raise UserError(f"{found['error']}; {REMEDY}")
    if found["changes"]:
        print("its chat_template changes replies that have </think>; here they stay as they are")
    return read_as(ChatFormat, found["format"], "chat")


def answer() -> None:
    """Read a template, its names and the text's opening as JSON; print the format, or an error."""
    limit_memory()
    template, names, text = json.loads(sys.stdin.buffer.read())
    try:
        form, changes = derive(template, names, text)
        found = {"format": asdict(form), "changes": changes}
    except MemoryError:
        sys.exit(TOO_MUCH)
    except Exception as error:  # whatever a program of somebody else raises
        found = {"error": f"{PROBLEM} ({type(error).__name__}: {str(error)[:200]})"}
    sys.stdout.buffer.write(json.dumps(found).encode())


def limit_memory() -> None:
    """Limit the memory of this process on Linux; elsewhere the time is the only limit."""
    if sys.platform == "linux":  # macOS refuses such a limit, and Windows has none
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))


def derive(template: str, names: dict[str, str], text: str) -> tuple[ChatFormat, bool]:
    """Return the format of a template, and whether the template changes what was thought aloud.

    Raises whatever the template does, and ValueError.
    """
    render = renderer(template, names)
    form = guess(render, text)
    for shape, text in product(SHAPES, (MARK, BARE)):
        if write(form, shape, text) != render(shape, text=text):
            raise ValueError(f"the conversation {shape!r} is written otherwise")
    return form, write(form, "uau", THOUGHT) != render("uau", text=THOUGHT)


PROBLEM = "the chat_template does more than write a system message and turns one after the other"
REMEDY = (
    "to export a base model, delete it: chat_template.jinja, or chat_template in "
    "tokenizer_config.json"
)


class Generation(Extension):
    """{% generation %}: the part that a trainer learns; Hugging Face writes it as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def renderer(template: str, names: dict[str, str]) -> Render:
    """Return a function that renders the template as Hugging Face does, but for today's date."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    # Without strftime_now, Llama 3's templates write a date of their own: the day of the export
    # would stand in every later conversation.
    environment.globals |= {"raise_exception": raise_exception, "tools": None, "documents": None}
    compiled = environment.from_string(template)

    def render(shape: str, prompt: bool = True, text: str = MARK) -> str:
        turns = [
            {"role": ROLES[letter], "content": c} for letter, c in zip(shape, contents(shape, text))
        ]
        return compiled.render(messages=turns, add_generation_prompt=prompt, **names)

    return render


def contents(shape: str, text: str = MARK) -> list[str]:
    """Return texts for a conversation such as `su` (system, user)."""
    return [text.format(i) for i in range(len(shape))]


def guess(render: Render, text: str) -> ChatFormat:
    """Derive the format from the strings around texts; raises ValueError if one is missing."""
    trims = contents("u")[0] not in render("u")
    start, user_after = around(render("u", prompt=False), "u", trims)
    _, after_user, after_assistant, end = around(render("uau"), "uau", trims)
    system_start, after_system, _ = around(render("su"), "su", trims)
    user_before = after_assistant.removeprefix(user_after)
    if not (start.endswith(user_before) and after_system.endswith(user_before)):
        user_before = ""
    return ChatFormat(
        text=text,
        opening=system_start,
        opening_alone=start.removesuffix(user_before),
        system=("", after_system.removesuffix(user_before)),
        user=(user_before, user_after),
        assistant=(after_user.removeprefix(user_after), after_assistant.removesuffix(user_before)),
        prompt=end.removeprefix(user_after),
        trims=trims,
    )


def around(rendered: str, shape: str, trims: bool) -> list[str]:
    """Return the strings before, between and after the texts."""
    pieces = []
    for content in contents(shape):
        piece, found, rendered = rendered.partition(content.strip() if trims else content)
        if not found:
            raise ValueError(f"a message is missing or changed in {shape!r}")
        pieces.append(piece)
    return [*pieces, rendered]


def write(form: ChatFormat, shape: str, text: str = MARK) -> str:
    """Return the conversation as written in the format."""
    result = form.opening if shape[0] == "s" else form.opening_alone
    for letter, content in zip(shape, contents(shape, text)):
        before, after = getattr(form, ROLES[letter])
        result += before + (content.strip() if form.trims else content) + after
    return result + form.prompt


if __name__ == "__main__":
    answer()
