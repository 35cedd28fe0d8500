"""gptcore's own model in PyTorch, with a cache; it takes one prompt at a time."""

from pathlib import Path

import torch

from export.runtimes.gptcore import row_by_row
from export.runtimes.program import Generate, serve
from export.verify.decoder import load_reference
from gptcore.bundle import load_bundle
from gptcore.nn.torch_session import TorchSession


def load(folder: Path, threads: int) -> tuple[str, Generate]:
    torch.set_num_threads(threads)
    model = load_reference(load_bundle(folder))
    return "model.safetensors", row_by_row(lambda: TorchSession(model))


if __name__ == "__main__":
    serve("pytorch", torch.__version__, load)
