"""gptcore's own session, with which the others are compared; it takes one prompt at a time."""

from collections.abc import Callable
from pathlib import Path

import onnxruntime as ort

from export.runtimes.program import Generate, Tick, serve
from gptcore.bundle import load_bundle
from gptcore.checks import check_choice
from gptcore.engine.generate import Session
from gptcore.model import open_model


def load(folder: Path, threads: int, variant: str = "fp32") -> tuple[str, Generate]:
    bundle = load_bundle(folder)
    check_choice("variant", variant, bundle.variants)
    model = open_model(bundle, "cpu", threads, variant)
    return f"onnx/{model.file_name}", row_by_row(model.session)


def row_by_row(new_session: Callable[[], Session]) -> Generate:
    return lambda prompts, n, tick: [greedy(new_session(), prompt, n, tick) for prompt in prompts]


def greedy(session: Session, prompt: list[int], n: int, tick: Tick) -> list[int]:
    ids, logits = [], session.prefill(prompt)
    while True:
        ids.append(int(logits.argmax()))
        tick()
        if len(ids) == n:
            return ids
        logits = session.step(ids[-1])


if __name__ == "__main__":
    serve("gptcore", f"onnxruntime {ort.__version__}", load)
