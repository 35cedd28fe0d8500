"""Reads a Hugging Face chat template as a ChatFormat: the strings around each message.

A template is a program. It is run on conversations whose texts are marks; the strings between
the marks are the format. The format must then give the same text for longer conversations.

    >>> template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}<assistant>"
    >>> read_format(template, {}, text="").user
    ('<user>', '</s>')
"""

from collections.abc import Callable
from datetime import datetime

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gptcore.checks import UserError
from gptcore.text.chat_format import ChatFormat

SHAPES = ("u", "su", "uau", "suau", "uauau")
ROLES = {"s": "system", "u": "user", "a": "assistant"}
Render = Callable[..., str]  # takes a conversation's shape, and whether to open the next reply


def read_format(template: str, names: dict[str, str], text: str) -> ChatFormat:
    """Return the format; `names`: bos_token and other variables; `text` opens a plain text.

    Raises UserError if the template does more than write one message after the other.
    """
    render = renderer(template, names)
    try:
        form = guess(render, text)
        same = all(write(form, shape) == render(shape) for shape in SHAPES)
    except (ValueError, jinja2.TemplateError) as error:
        raise UserError(f"{PROBLEM} ({error}); {REMEDY}") from None
    if not same:
        raise UserError(f"{PROBLEM}; {REMEDY}")
    return form


PROBLEM = "the chat_template does more than write a system message and turns one after the other"
REMEDY = "delete it from tokenizer_config.json to export a base model"


def renderer(template: str, names: dict[str, str]) -> Render:
    """Return a function that renders the template as Hugging Face does."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda form: datetime.now().strftime(form),
    }
    try:
        compiled = environment.from_string(template)
    except jinja2.TemplateError as error:
        raise UserError(f"the chat_template is not valid Jinja ({error}); {REMEDY}") from None

    def render(shape: str, prompt: bool = True) -> str:
        turns = [{"role": ROLES[letter], "content": c} for letter, c in zip(shape, contents(shape))]
        return compiled.render(messages=turns, add_generation_prompt=prompt, **names)

    return render


def contents(shape: str) -> list[str]:
    """Return texts for a conversation such as `su` (system, user), with white space around."""
    return [f" \nmark{i} " for i in range(len(shape))]


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


def write(form: ChatFormat, shape: str) -> str:
    """Return the conversation as written in the format."""
    result = form.opening if shape[0] == "s" else form.opening_alone
    for letter, content in zip(shape, contents(shape)):
        before, after = getattr(form, ROLES[letter])
        result += before + (content.strip() if form.trims else content) + after
    return result + form.prompt
