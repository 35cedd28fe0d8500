"""Optimum's ORTModelForCausalLM: Hugging Face's generate() over the ONNX file."""

from importlib.metadata import version
from pathlib import Path

import onnxruntime as ort
from optimum.onnxruntime import ORTModelForCausalLM

from export.runtimes.program import FILE, Generate, serve
from export.runtimes.transformers import generate_with


def load(folder: Path, threads: int) -> tuple[str, Generate]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    model = ORTModelForCausalLM.from_pretrained(folder, session_options=options)
    return FILE, generate_with(model)


if __name__ == "__main__":
    serve("optimum-onnx", version("optimum-onnx"), load)
