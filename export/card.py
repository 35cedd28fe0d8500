"""The model card: README.md with the Hub's front matter, from measured values.

>>> write_card(Path("README.md"), facts, Hub())                      # doctest: +SKIP
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gptcore.config import ModelConfig, Seq2SeqConfig, config_from_dict
from gptcore.nn.llama import is_llama


class Hub(NamedTuple):
    """What the Hub wants to know and only a person can say."""

    license: str = "mit"
    languages: Sequence[str] = ()
    datasets: Sequence[str] = ()  # their names on the Hub


CARD = """\
---
license: {hub.license}
{lists}{front_matter}
tags:
- onnx
{llama_tag}- gptcore
---

# {name}

{shape} {purpose}

| measured | value |
|---|---|
{rows}

{variants}{origin}

## Use

```python
{use}
```

{files}

It is a small model: it can be wrong, and it knows nothing beyond what it was trained on.
"""

DECODER_SHAPE = """\
A decoder of {parameters:,} parameters ({n_layer} layers, {n_embd} wide, {n_head} heads, of which
{n_kv_head} for keys and values), with a context of {block_size} tokens and a byte-level
vocabulary of {vocab_size}."""
TRANSLATOR_SHAPE = """\
An encoder-decoder of {parameters:,} parameters ({n_encoder_layer} and {n_layer} layers,
{n_embd} wide, {n_head} heads), for sentences of at most {block_size} tokens, with byte-level
vocabularies of {source_vocab_size} and {vocab_size}."""
DECODER_USE = """\
from gptcore.generate import {function}
from gptcore.onnx_session import load_model

model = load_model("path/to/this/folder")
for piece in {call}:
    print(piece.text, end="", flush=True)"""
TRANSLATOR_USE = """\
from gptcore.onnx_translator import load_translator
from gptcore.translate import translate

model = load_translator("path/to/this/folder")
print(translate(model, "a sentence", beams=4).text)"""
DECODER_FILES = """\
`onnx/model.onnx` takes `input_ids`, `attention_mask`, `position_ids` and `past_key_values.*`, and
returns `logits` and `present.*`; pad batches on the left."""
TRANSLATOR_FILES = """\
`onnx/encoder_model.onnx` takes `input_ids` and `attention_mask` (pad on the right) and returns
`present.*.encoder.*`, the keys and values of the source; `onnx/decoder_with_past_model.onnx` takes
those as `past_key_values.*.encoder.*`, with `input_ids`, `attention_mask`, `position_ids`,
`encoder_attention_mask` and its own `past_key_values.*.decoder.*`, and returns `logits` and
`present.*.decoder.*`. A source ends with `<|end|>`; a target begins with `<|endoftext|>`."""
VARIANTS = """\
| file | format | transformers.js dtype | size | bits per byte | token as in fp32 | KL, nats |
|---|---|---|--:|--:|--:|--:|
"""
DTYPES = {"fp32": "fp32", "fp16": "fp16", "int8": "q8", "q8": "int8", "q4": "q4"}
LABELS = {
    "bits_per_byte": ("bits per byte, held-out text", ".4f"),
    "val_loss": ("loss, nats per token", ".4f"),
    "bleu": ("BLEU (sacreBLEU), greedy", ".2f"),
    "chrf": ("chrF (sacreBLEU), greedy", ".2f"),
}


def write_card(path: Path, facts: dict[str, Any], hub: Hub) -> None:
    config, measured = config_from_dict(facts["config"]), facts.get("measured", {})
    rows = [
        (label, format(measured[key], form))
        for key, (label, form) in LABELS.items()
        if key in measured
    ]
    rows += [(check["name"], f"{check['worst']:.2g}") for check in facts["parity"]]
    text = CARD.format(
        name=facts["name"],
        hub=hub,
        lists=yaml_list("language", hub.languages) + yaml_list("datasets", hub.datasets),
        llama_tag="- llama\n" if is_llama(config) else "",
        rows="\n".join(f"| {name} | {value} |" for name, value in rows),
        origin=origin(facts),
        variants=variants_table(facts.get("variants", {})),
        **KINDS[type(config)](config, facts),
    )
    path.write_text(text, encoding="utf-8")


def yaml_list(key: str, values: Sequence[str]) -> str:
    """Lines of the front matter; none for an empty list, which the Hub would refuse."""
    return "".join([f"{key}:\n", *(f"- {value}\n" for value in values)]) if values else ""


def origin(facts: dict[str, Any]) -> str:
    """Where the weights come from."""
    if "imported" in facts:
        imported = facts["imported"]
        return (
            f"Exported from the Hugging Face model {imported['from']}. Bits per byte are measured "
            f"on {imported['measured_on']}."
        )
    step, data = facts["training"]["step"], facts["training"]["data"]
    return f"Trained for {step:,} steps on {data['source']} ({data['n_bytes']:,} bytes)."


def variants_table(variants: dict[str, dict[str, Any]]) -> str:
    """The files in smaller number formats, or nothing if there are none."""
    if not variants:
        return ""
    lines = [
        f"| `{fact['file']}` | {name} | {DTYPES[name]} | {fact['bytes'] / 1e6:.1f} MB "
        f"| {fact['bits_per_byte']:.4f} | {fact['agreement']:.2%} | {fact['divergence']:.2g} |"
        for name, fact in variants.items()
    ]
    return VARIANTS + "\n".join(lines) + "\n\n"


def of_decoder(config: ModelConfig, facts: dict[str, Any]) -> dict[str, str]:
    if facts["chat"]:
        purpose = "It answers in conversations."
        function, call = "chat", 'chat(model, [{"role": "user", "content": "Hello!"}])'
    else:
        purpose = "It is a base model: it continues text and does not answer questions."
        function, call = "complete", 'complete(model, "Once upon a time")'
    library, loads = "gptcore", ""
    if is_llama(config):
        is_for_browsers = "int8" in facts.get("variants", {})  # what it takes there by itself
        library = "transformers.js" if is_for_browsers else "transformers"
        loads = " `model.safetensors` loads as\n`LlamaForCausalLM`."
    return {
        "front_matter": f"library_name: {library}\npipeline_tag: text-generation",
        "shape": DECODER_SHAPE.format(parameters=facts["parameters"], **facts["config"]),
        "purpose": purpose,
        "use": DECODER_USE.format(function=function, call=call),
        "files": DECODER_FILES + loads,
    }


def of_translator(config: Seq2SeqConfig, facts: dict[str, Any]) -> dict[str, str]:
    return {
        "front_matter": "library_name: gptcore\npipeline_tag: translation",
        "shape": TRANSLATOR_SHAPE.format(parameters=facts["parameters"], **facts["config"]),
        "purpose": "It translates single sentences.",
        "use": TRANSLATOR_USE,
        "files": TRANSLATOR_FILES,
    }


KINDS = {ModelConfig: of_decoder, Seq2SeqConfig: of_translator}


def read_license(folder: Path) -> str:
    """The licence that a folder's own card names."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.exists() else ""
    found = re.search(r"\A---\n(?:.*\n)*?license:\s*([\w.\-]+)\s*\n", text)
    return found[1] if found else "other"
