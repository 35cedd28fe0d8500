"""ONNX Runtime and numpy alone: the loop that a program in any language can use."""

from pathlib import Path

import numpy as np
import onnxruntime as ort

from export.runtimes.program import Generate, greedy, serve

FILE = "onnx/model.onnx"


def load(folder: Path, threads: int, file: str = FILE) -> tuple[str, Generate]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(folder / file, options, providers=["CPUExecutionProvider"])
    caches = {i.name: i.shape for i in session.get_inputs() if i.name.startswith("past")}

    def generate(prompts, n, tick):
        cache = {
            name: np.zeros((len(prompts), heads, 0, size), np.float32)
            for name, (_, heads, _, size) in caches.items()
        }
        return greedy(lambda feeds: session.run(None, feeds), cache, prompts, n, tick)

    return file, generate


if __name__ == "__main__":
    serve("onnxruntime", ort.__version__, load)
