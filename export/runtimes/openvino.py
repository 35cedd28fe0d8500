"""OpenVINO, which reads the ONNX file unchanged; it is set to compute in fp32."""

from pathlib import Path

import numpy as np
import openvino as ov

from export.runtimes.program import Generate, greedy, serve

FILE = "onnx/model.onnx"


def load(folder: Path, threads: int, file: str = FILE) -> tuple[str, Generate]:
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    model = ov.Core().compile_model(folder / file, "CPU", settings)
    caches = {i.any_name: i.partial_shape for i in model.inputs if i.any_name.startswith("past")}

    def generate(prompts, n, tick):
        cache = {
            name: np.zeros((len(prompts), heads.get_length(), 0, size.get_length()), np.float32)
            for name, (_, heads, _, size) in caches.items()
        }
        return greedy(lambda feeds: list(model(feeds).values()), cache, prompts, n, tick)

    return file, generate


if __name__ == "__main__":
    serve("openvino", ov.__version__.split("-")[0], load)
