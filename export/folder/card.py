"""Writes the model card: README.md with front matter for the Hub and measured values.

>>> write_card(Path("README.md"), facts, Hub())                      # doctest: +SKIP
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from export.folder.scores import evaluation_table
from export.folder.transformers_js import DTYPES
from gptcore.bundle import INDEX, VARIANTS, WEIGHTS
from gptcore.config import Seq2SeqConfig
from gptcore.facts import EarlierStage, ModelFacts, Training
from gptcore.families import CLASSES, family
from gptcore.system.wording import counted, duration
from training.data.sources import DIALOGUES
from training.datasets.registry import DATASETS

UNNAMED = "other"  # the Hub's value for a licence that is unnamed or not on its list


class Hub(NamedTuple):
    """The entries of the front matter that only a person can decide."""

    license: str = UNNAMED
    languages: Sequence[str] = ()
    datasets: Sequence[str] = ()  # names of data sets on the Hub
    terms: str = ""  # lines that name and link a licence of its own


LOSS = "loss.png"  # plot of the run's loss, in the model folder
LISTS = ("language", "datasets")  # keys of the front matter whose values are lists

CARD = """\
---
license: {hub.license}
{hub.terms}{base_model}{lists}{front_matter}
tags:
- onnx
{family_tag}- gptcore
---

# {name}

{shape} {purpose}

| measured | value |
|---|---|
{rows}

{variants}{origin}

{data}{licence}{evaluation}## Use

```python
{use}
```

{files}

It is a small model: it can be wrong, and it knows nothing beyond what it was trained on.
"""

DECODER_SHAPE = """\
A decoder of {parameters:,} parameters ({layers}, {n_embd} wide, {heads}, of which
{n_kv_head} for keys and values), with a context of {block_size} tokens and a byte-level
vocabulary of {vocab_size}."""
TRANSLATOR_SHAPE = """\
An encoder-decoder of {parameters:,} parameters ({n_encoder_layer} and {layers},
{n_embd} wide, {heads}), for sentences of at most {block_size} tokens, with byte-level
vocabularies of {source_vocab_size} and {vocab_size}."""
DECODER_USE = """\
from gptcore import {function}, load_model

model = load_model("path/to/this/folder")
for piece in {call}:
    print(piece.text, end="", flush=True)"""
TRANSLATOR_USE = """\
from gptcore.translation.onnx import load_translator
from gptcore.translation.search import translate

model = load_translator("path/to/this/folder")
print(translate(model, "a sentence", beams=4).text)"""
DECODER_FILES = """\
`{file}` takes `input_ids`, `attention_mask`, `position_ids` and `past_key_values.*`, and
returns `logits` and `present.*`; pad batches on the left."""
TRANSLATOR_FILES = """\
`onnx/encoder_model.onnx` takes `input_ids` and `attention_mask` (pad on the right) and returns
`present.*.encoder.*`, the keys and values of the source; `onnx/decoder_with_past_model.onnx` takes
those as `past_key_values.*.encoder.*`, with `input_ids`, `attention_mask`, `position_ids`,
`encoder_attention_mask` and its own `past_key_values.*.decoder.*`, and returns `logits` and
`present.*.decoder.*`. A source ends with `<|end|>`; a target begins with `<|endoftext|>`."""
FORMATS = """\
| file | format | transformers.js dtype | size | bits per byte{text} | token as in fp32 | KL, nats |
|---|---|---|--:|--:|--:|--:|
"""
DATA = """\
## Data

| dataset | read | licence | by |
|---|--:|---|---|
{rows}

{share_alike}

"""
LICENCE = """\
## Licence

No licence has been named for these weights (`python -m export --license` names one). {texts}

"""
LISTED = "The texts that\nthey were trained on have the licences above."
UNKNOWN = "The licence of\n{source}, which they were trained on, is not known here."
OWN = "MIT | this project's own, made by `training/dialogues`"
SHARE_ALIKE = """\
{names}: share-alike, which concerns copies and changed forms of these
texts. Whether it also concerns weights that were trained on them is not settled; if you publish
such texts or a changed form of them, keep their licence."""
BITS = "bits_per_byte"
LABELS = {
    BITS: ("bits per byte, held-out text", ".4f"),
    "val_loss": ("loss, nats per token", ".4f"),
    "bleu": ("BLEU (sacreBLEU), greedy", ".2f"),
    "chrf": ("chrF (sacreBLEU), greedy", ".2f"),
}


def write_card(path: Path, facts: ModelFacts, hub: Hub) -> None:
    """Write the card of the folder that `path` is in, which has its other files already."""
    measured, is_translator = facts.measured, isinstance(facts.config, Seq2SeqConfig)
    of_kind = of_translator(facts) if is_translator else of_decoder(facts, path.parent)
    rows = [
        (label, format(measured[key], form))
        for key, (label, form) in LABELS.items()
        if key in measured
    ]
    rows += [(check.name, found(check.worst)) for check in facts.parity]
    text = CARD.format(
        name=facts.name,
        hub=hub,
        lists=yaml_list("language", hub.languages) + yaml_list("datasets", hub.datasets),
        base_model=base_model(facts),
        rows="\n".join(f"| {name} | {value} |" for name, value in rows),
        origin=origin(facts),
        variants=variants_table(facts),
        data=data_table(facts),
        licence=licence_section(facts) if hub.license == UNNAMED and not hub.terms else "",
        evaluation=evaluation_table(facts),
        **of_kind,
    )
    path.write_text(text, encoding="utf-8", newline="\n")


def found(worst: float | None) -> str:
    """Format the largest difference found by a check."""
    return "not compared" if worst is None else f"{worst:.2g}"


def yaml_list(key: str, values: Sequence[str]) -> str:
    """Return front matter for a list, or nothing if it is empty: the Hub refuses empty lists."""
    # In quotes, because YAML reads Norwegian, `no`, as false.
    items = "".join(f"- {json.dumps(value)}\n" for value in values)
    return f"{key}:\n{items}" if values else ""


def base_model(facts: ModelFacts) -> str:
    """Return the front matter's line for a model of the Hub, which is known as OWNER/NAME."""
    source = facts.imported.source if facts.imported else ""
    return f"base_model: {source}\n" if "/" in source else ""


def origin(facts: ModelFacts) -> str:
    """Return sentences that say where the weights come from."""
    training = facts.training
    if facts.imported and not training:
        return (
            f"Exported from {facts.imported.source}, a model made elsewhere. Bits per byte are "
            f"measured on {facts.imported.measured_on}."
        )
    if training is None:
        return "The folder does not say where its weights come from."
    data = training.data
    lines = [
        f"Stage {stage.name}: {counted(stage.steps, 'step')} on {stage.source}. {took(stage)}"
        for stage in data.stages
    ]
    lines += [f"Fine-tuned from {facts.imported.source}."] if facts.imported else []
    if start := facts.start:
        licence = f" (licence: {start.license})" if start.license else ""
        lines.append(f"The training began with the weights of {start.name}{licence}.")
    lines += [
        f"Trained for {counted(training.step, 'step')} on {data.source} ({data.n_bytes:,} bytes). "
        f"{took(training)}".rstrip()
    ]
    return "\n\n".join(lines) + (f"\n\n![Loss]({LOSS})" if facts.loss_curve else "")


def took(training: Training | EarlierStage) -> str:
    """Return a sentence with the duration of a run or stage, or nothing if it has not finished."""
    tokens, seconds = training.tokens, training.seconds
    if not tokens or not seconds:
        return ""
    return (
        f"That took {duration(seconds)} for {tokens:,} tokens ({tokens / seconds:,.0f} tokens/s)."
    )


def variants_table(facts: ModelFacts) -> str:
    """Return a table of the files in smaller number formats, or nothing if there are none."""
    if not facts.variants:
        return ""
    of_training = facts.measured and BITS not in facts.measured  # see variants.compared_rows
    lines = [
        f"| `{fact.file}` | {name} | {DTYPES[name]} | {fact.bytes / 1e6:.1f} MB "
        f"| {fact.bits_per_byte:.4f} | {fact.agreement:.2%} | {fact.divergence:.2g} |"
        for name, fact in facts.variants.items()
    ]
    return FORMATS.format(text=", training text" if of_training else "") + "\n".join(lines) + "\n\n"


def data_table(facts: ModelFacts) -> str:
    """Return a table of a run's known data sets with licences, or nothing if there are none."""
    passes = facts.training.data.datasets if facts.training else {}
    known = {name: DATASETS[name] for name in passes if name in DATASETS}
    terms = {DIALOGUES: OWN} | {name: f"{d.licence} | {d.attribution}" for name, d in known.items()}
    links = {name: f"[{name}]({d.homepage})" for name, d in known.items()}
    lines = [
        f"| {links.get(name, name)} | {number:g} x | {terms.get(name, 'unknown | unknown')} |"
        for name, number in passes.items()
    ]
    names = ", ".join(name for name, dataset in known.items() if dataset.share_alike)
    share_alike = SHARE_ALIKE.format(names=names) if names else ""
    return DATA.format(rows="\n".join(lines), share_alike=share_alike) if lines else ""


def licence_section(facts: ModelFacts) -> str:
    """Return what is known of the texts' licences; the original card of an import says more."""
    if not facts.training:
        return ""
    texts = LISTED if data_table(facts) else UNKNOWN.format(source=facts.training.data.source)
    return LICENCE.format(texts=texts)


def of_decoder(facts: ModelFacts, folder: Path) -> dict[str, str]:
    if facts.chat:
        purpose = "It answers in conversations."
        function, call = "chat", 'chat(model, [{"role": "user", "content": "Hello!"}])'
    else:
        purpose = "It is a base model: it continues text and does not answer questions."
        function, call = "complete", 'complete(model, "Once upon a time")'
    # Without config.json, no library that knows the family knows this model.
    name = family(facts.config) if (folder / "config.json").is_file() else None
    library, loads = "gptcore", ""
    file = next((variant.file for variant in facts.variants.values()), VARIANTS["fp32"])
    if name:
        is_for_browsers = "int8" in facts.variants  # transformers.js loads this file in browsers
        library = "transformers.js" if is_for_browsers else "transformers"
        has_weights = any((folder / weights).is_file() for weights in (WEIGHTS, INDEX))
        loads = f" `model.safetensors` loads as\n`{CLASSES[name]}`." if has_weights else ""
    return {
        "front_matter": f"library_name: {library}\npipeline_tag: text-generation",
        "family_tag": f"- {name}\n" if name else "",
        "shape": shape(DECODER_SHAPE, facts),
        "purpose": purpose,
        "use": DECODER_USE.format(function=function, call=call),
        "files": DECODER_FILES.format(file=file) + loads,
    }


def shape(form: str, facts: ModelFacts) -> str:
    config = facts.config
    return form.format(
        parameters=facts.parameters,
        layers=counted(config.n_layer, "layer"),
        heads=counted(config.n_head, "head"),
        **config.to_dict(),
    )


def of_translator(facts: ModelFacts) -> dict[str, str]:
    return {
        "front_matter": "library_name: gptcore\npipeline_tag: translation",
        "family_tag": "",
        "shape": shape(TRANSLATOR_SHAPE, facts),
        "purpose": "It translates single sentences.",
        "use": TRANSLATOR_USE,
        "files": TRANSLATOR_FILES,
    }


def read_hub(folder: Path) -> Hub:
    """Return the entries that a folder's card has for the Hub."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.exists() else ""
    front = match[1] if (match := re.match(r"---\n((?:.*\n)*?)---\n", text)) else ""
    found = re.search(r"""^license: *["']?([\w.\-]+)["']? *(?: #.*)?$""", front, re.MULTILINE)
    # A link to a file of that folder would lead elsewhere from a copy's, or nowhere.
    pattern = r"""^license_(?:name:|link: *["']?https?:).*\n"""
    terms = "".join(re.findall(pattern, front, re.MULTILINE))
    lists = (re.search(rf"^{key}:\n((?:- .*\n)*)", front, re.MULTILINE) for key in LISTS)
    languages, datasets = (re.findall(r"- [\"']?(.*\w)", m[1]) if m else [] for m in lists)
    return Hub(found[1] if found else UNNAMED, languages, datasets, terms)
