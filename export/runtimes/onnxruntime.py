"""ONNX Runtime and numpy alone: the loop that a program in any language can use."""

from functools import partial
from pathlib import Path

import onnxruntime as ort

from export.runtimes.program import FILE, Generate, greedy, serve


def load(folder: Path, threads: int, file: str = FILE) -> tuple[str, Generate]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(folder / file, options, providers=["CPUExecutionProvider"])
    shapes = {i.name: i.shape for i in session.get_inputs() if i.name.startswith("past")}
    caches = {name: (heads, size) for name, (_, heads, _, size) in shapes.items()}
    return file, partial(greedy, partial(session.run, None), caches)


if __name__ == "__main__":
    serve("onnxruntime", ort.__version__, load)
