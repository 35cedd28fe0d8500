"""Tells transformers.js which files a model folder has: the key `transformers.js_config`.

>>> tell_transformers_js(Path("models/nano"), ["fp32", "int8"])      # doctest: +SKIP

Its own defaults are `fp32`, and `q8` where it computes in WebAssembly; a folder may lack these, and
it does not look for weights beside a graph by itself.
"""

from collections.abc import Collection
from pathlib import Path

from gptcore.bundle import VARIANTS, data_file
from gptcore.system.files import read_json, write_json

# What transformers.js calls each variant.
DTYPES = {name: name for name in ("fp32", "fp16", "q4", "q4f16")} | {"int8": "q8", "q8": "int8"}
ANYWHERE = ("fp32", "q8", "q4", "int8", "fp16", "q4f16")  # the first that the folder has is taken
WEB_ASSEMBLY = ("int8", "q8", "q4", "fp32", "fp16", "q4f16")  # it is slow with blocks


def tell_transformers_js(folder: Path, variants: Collection[str]) -> None:
    """Add the key to the folder's config.json, if it has one."""
    path = folder / "config.json"
    if not path.is_file():
        return
    anywhere, web = (
        DTYPES[next(name for name in order if name in variants)]
        for order in (ANYWHERE, WEB_ASSEMBLY)
    )
    graphs = [folder / VARIANTS[name] for name in variants]
    files = {graph.name: 1 for graph in graphs if data_file(graph).is_file()}
    config = read_json(path)
    config["transformers.js_config"] = {
        "dtype": anywhere,
        "device_config": {"wasm": {"dtype": web}},
        "use_external_data_format": files,
    }
    write_json(path, config)
