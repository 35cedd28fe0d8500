"""The model card: README.md with the Hub's front matter, from measured values.

>>> write_card(Path("README.md"), facts, "mit")                      # doctest: +SKIP
"""

from pathlib import Path
from typing import Any

CARD = """\
---
license: {license_name}
language:
- en
library_name: transformers.js
pipeline_tag: text-generation
tags:
- onnx
- llama
- gptcore
---

# {name}

A decoder of {parameters:,} parameters ({n_layer} layers, {n_embd} wide, {n_head} heads, of which
{n_kv_head} for keys and values), with a context of {block_size} tokens and a byte-level
vocabulary of {vocab_size}. {purpose}

| measured | value |
|---|---|
{rows}

Trained for {step:,} steps on {source} ({n_bytes:,} bytes).

## Use

```python
from gptcore.generate import {function}
from gptcore.onnx_session import load_model

model = load_model("path/to/this/folder")
for piece in {call}:
    print(piece.text, end="", flush=True)
```

`onnx/model.onnx` takes `input_ids`, `attention_mask`, `position_ids` and `past_key_values.*`, and
returns `logits` and `present.*`; pad batches on the left. `model.safetensors` loads as
`LlamaForCausalLM`.

It is a small model: it can be wrong, and it knows nothing beyond what it was trained on.
"""


def write_card(path: Path, facts: dict[str, Any], license_name: str) -> None:
    measured = facts["measured"]
    rows = []
    if measured:
        rows.append(("bits per byte, held-out text", f"{measured['bits_per_byte']:.4f}"))
        rows.append(("loss, nats per token", f"{measured['val_loss']:.4f}"))
    rows += [(check["name"], f"{check['worst']:.2g}") for check in facts["parity"]]
    if facts["chat"]:
        purpose = "It answers in conversations."
        function, call = "chat", 'chat(model, [{"role": "user", "content": "Hello!"}])'
    else:
        purpose = "It is a base model: it continues text and does not answer questions."
        function, call = "complete", 'complete(model, "Once upon a time")'
    text = CARD.format(
        name=facts["name"],
        license_name=license_name,
        parameters=facts["parameters"],
        purpose=purpose,
        rows="\n".join(f"| {name} | {value} |" for name, value in rows),
        step=facts["training"]["step"],
        source=facts["training"]["data"]["source"],
        n_bytes=facts["training"]["data"]["n_bytes"],
        function=function,
        call=call,
        **facts["config"],
    )
    path.write_text(text, encoding="utf-8")
