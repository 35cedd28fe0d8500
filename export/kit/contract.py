"""What a program must know to run a model: contract.json, and the same as a page to read.

>>> contract(load_bundle("models/nano"), graphs)["limits"]           # doctest: +SKIP
{'context': 512, 'vocabulary': 4096}
"""

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from gptcore.bundle import Bundle
from gptcore.text.chat_template import split_special
from gptcore.text.tokenizer import Tokenizer

TYPES = {TensorProto.FLOAT: "float32", TensorProto.INT64: "int64"}
Parts = list[int | str]

PAGE = Path(__file__).with_name("contract.md")  # a template
HUGGING_FACE = (
    " `tokenizer.json` is for Hugging Face's tokenizers, which are to add\nnothing to a text: "
    "`encode(text, add_special_tokens=False)`."
)
AS_TEXT = """
In Hugging Face's Python package `tokenizers` that is `tokenizer.encode_special_tokens = True`.
Its package for JavaScript, `@huggingface/tokenizers`, has no such setting: before you make a
`Tokenizer`, take those of `added_tokens` that are `special` out of what `tokenizer.json` says, or
a message may hold the end of a turn."""
FOUND_WHOLE = "first finds the tokens of `found_whole`, each of which is one id, "
KEPT = " Only the ranks of `kept` are numbered; a token without an id becomes its single bytes."
MISSING = " A byte without a token is left out, and what stood around it merges."
CHAT = """\
Numbers are ids. Quoted words are text: join them with the message beside them, and encode the
whole.{trims}

| what | before the text | after it |
|---|---|---|
| start, without a system message | {opening_alone} | |
| start, with one | {opening} | |
| system message | {system} | {system_end} |
| the user's message | {user} | {user_end} |
| an earlier reply | {assistant} | {assistant_end} |
| the reply to come | {reply} | |"""
TRIMS = (
    " White space around a message is removed first, as Python's\n`strip()` does: U+001C to U+001F "
    "and U+0085 are such, U+FEFF is not."
)
BASE = "This model continues texts and knows no conversation. {opening}."


def contract(bundle: Bundle, graphs: dict[str, str]) -> dict[str, Any]:
    """Return what a program must know.

    `graphs`: the graphs' files by what they are, of which "portable" and "sampling" are there.
    """
    tokenizer, config = bundle.tokenizer, bundle.config
    special = sorted(tokenizer.special.items(), key=lambda item: item[1])
    return {
        "name": bundle.name,
        "graphs": {name: declared(bundle.path / file) for name, file in graphs.items()},
        "files": graphs,
        "tokenizer": {
            "pattern": tokenizer.pattern,
            "normal_form": tokenizer.normal_form,
            "special": dict(special),
            "found_whole": tokenizer.added,
            "kept": tokenizer.kept,
        },
        "chat": chat_parts(tokenizer) if bundle.is_chat else None,
        "text": parts_of(tokenizer.chat.text, tokenizer),
        "stop": [i for _, i in special],
        "limits": {"context": config.block_size, "vocabulary": config.vocab_size},
    }


def chat_parts(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the chat template as ids and words."""
    form = tokenizer.chat

    def around(ends: tuple[str, str]) -> list[Parts]:
        return [parts_of(end, tokenizer) for end in ends]

    return {
        "opening_alone": parts_of(form.opening_alone, tokenizer),
        "opening": parts_of(form.opening, tokenizer),
        "system": around(form.system),
        "user": around(form.user),
        "assistant": around(form.assistant),
        "reply": parts_of(form.prompt, tokenizer),
        "trims": form.trims,
    }


def parts_of(template: str, tokenizer: Tokenizer) -> Parts:
    return [
        tokenizer.special.get(part, part) for part in split_special(template, tokenizer) if part
    ]


def declared(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the inputs and outputs of a graph: names, types and shapes."""
    graph = onnx.load(path, load_external_data=False).graph

    def values(side: Any) -> list[dict[str, Any]]:
        result = []
        for value in side:
            kind = value.type.tensor_type
            shape = [d.dim_param or d.dim_value for d in kind.shape.dim]
            result.append({"name": value.name, "type": TYPES[kind.elem_type], "shape": shape})
        return result

    return {"inputs": values(graph.input), "outputs": values(graph.output)}


# ------------------------------------------------------------------ the page


def page(bundle: Bundle, facts: dict[str, Any], vectors: dict[str, Any]) -> str:
    """Return the contract as Markdown."""
    has_json = (bundle.path / "tokenizer.json").is_file()
    tokenizer, portable = facts["tokenizer"], facts["graphs"]["portable"]
    cache = next(v["shape"] for v in portable["inputs"] if v["name"].startswith("past"))
    known = [value["name"] for side in portable.values() for value in side]
    chat, form = facts["chat"], tokenizer["normal_form"]
    return PAGE.read_text(encoding="utf-8").format(
        name=facts["name"],
        parameters=bundle.facts.parameters,
        last_layer=bundle.config.n_layer - 1,
        **facts["limits"],
        **{f"n_{name}": len(vectors[name]) for name in ("texts", "prompts", "draws")},
        cache=f"(batch, {cache[1]}, 0, {cache[3]})",
        graphs=table(["graph", "file"], [[k, f"`{f}`"] for k, f in facts["files"].items()]),
        portable=facts["files"]["portable"],
        sampling=facts["files"]["sampling"],
        portable_table=values_table(portable, []),
        sampling_table=values_table(facts["graphs"]["sampling"], known),
        hugging_face=HUGGING_FACE if has_json else "",
        as_text=AS_TEXT if has_json else "",
        form=f"brings it into Unicode's form {form}, " if form else "",
        found_whole=FOUND_WHOLE if tokenizer["found_whole"] else "",
        kept=KEPT if tokenizer["kept"] else "",
        missing="" if set(map(bytes, zip(range(256)))) <= set(bundle.tokenizer.ranks) else MISSING,
        special=next(reversed(tokenizer["special"])),
        special_table="\n".join(
            f"| `{escaped(name)}` | {i} |" for name, i in tokenizer["special"].items()
        ),
        stop=", ".join(map(str, facts["stop"])),
        title="A conversation" if chat else "A text",
        chat=chat_page(chat) if chat else BASE.format(opening=opening(facts["text"])),
    )


def opening(parts: list[int | str]) -> str:
    return f"A text begins with {written(parts)}" if parts else "Nothing opens a text"


def chat_page(chat: dict[str, Any]) -> str:
    ends = {role: written(chat[role][0]) for role in ("system", "user", "assistant")}
    ends |= {f"{role}_end": written(chat[role][1]) for role in ("system", "user", "assistant")}
    single = {name: written(chat[name]) for name in ("opening_alone", "opening", "reply")}
    return CHAT.format(trims=TRIMS if chat["trims"] else "", **ends, **single)


def written(parts: Parts) -> str:
    return " ".join(
        str(part) if isinstance(part, int) else quoted(escaped(repr(part))) for part in parts
    )


def quoted(text: str) -> str:
    """Return text as code in Markdown, also if it holds a backtick."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def values_table(graph: dict[str, list[dict[str, Any]]], known: list[str]) -> str:
    """Return a table of inputs and outputs. The caches of the first layer stand for all."""
    rows = []
    for side, values in graph.items():
        for value in values:
            name, shape = value["name"], ", ".join(map(str, value["shape"]))
            if name in known or (".key" in name and ".0." not in name) or ".value" in name:
                continue
            name = name.replace(".0.key", ".N.key, .value")
            rows.append([side.removesuffix("s"), f"`{name}`", value["type"], f"({shape})"])
    return table(["", "name", "type", "shape"], rows)


def escaped(text: str) -> str:
    return text.replace("|", "\\|")  # a table's cells end there


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
