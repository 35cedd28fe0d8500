"""OpenVINO, which reads the ONNX file unchanged; it is set to compute in fp32."""

from functools import partial
from pathlib import Path

import openvino as ov

from export.runtimes.program import FILE, Generate, greedy, serve


def load(folder: Path, threads: int, file: str = FILE) -> tuple[str, Generate]:
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    model = ov.Core().compile_model(folder / file, "CPU", settings)
    shapes = {i.any_name: i.partial_shape for i in model.inputs if i.any_name.startswith("past")}
    caches = {name: (k.get_length(), d.get_length()) for name, (_, k, _, d) in shapes.items()}
    return file, partial(greedy, lambda feeds: list(model(feeds).values()), caches)


if __name__ == "__main__":
    serve("openvino", ov.__version__.split("-")[0], load)
