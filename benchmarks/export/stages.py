"""The stages of an export: seconds, and the most resident memory, of each.

    python benchmarks/export/stages.py ~/models/SmolLM2-135M-Instruct
    python benchmarks/export/stages.py 1536,28,12,2,8960,151936,32768

The argument is a Hugging Face Llama, or a shape for random weights: n_embd, n_layer, n_head,
n_kv_head, n_inner, vocab_size and block_size. The same functions are called as by
`python -m export --from-hf`, all in one process.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch

from benchmarks.memory import peak_memory, reset_peak
from export.folder.serving import write_serving_graphs
from export.formats.hugging_face import transformers_config
from export.formats.to_onnx import write_decoder
from export.formats.weights import Weights, write_weights
from export.pretrained.config import read_config
from export.verify.decoder import compare_graph, expect, load_reference
from export.verify.hugging_face import CONFIG, check_config
from export.verify.report import print_report
from gptcore.bundle import ONNX, Bundle, write_facts
from gptcore.config import ModelConfig
from gptcore.facts import Imported, ModelFacts
from gptcore.nn import build_model, count_parameters
from gptcore.nn.checkpoint import model_of
from gptcore.nn.gpt import GPT
from gptcore.nn.llama import from_llama, to_llama
from training.machine.malloc import return_freed_memory

SHAPE = ("n_embd", "n_layer", "n_head", "n_kv_head", "n_inner", "vocab_size", "block_size")
IDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder, or a shape")
    parser.add_argument("--folder", type=Path, help="where the temporary model folder is written")
    options = parser.parse_args()
    return_freed_memory()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        export(options.model, Path(name))


def export(source: str, folder: Path) -> None:
    began = time.monotonic()
    with stage("weights read"):
        model = read(Path(source)) if Path(source).is_dir() else drawn(source)
    config, n_parameters = model.config, count_parameters(model)
    gigabytes = 4 * n_parameters / 1e9
    print(f"{n_parameters / 1e6:.0f}M parameters, {gigabytes:.2f} GB in fp32")
    (folder / ONNX).parent.mkdir()
    with stage("graph written"):
        write_decoder(model, folder / ONNX)
    with stage("safetensors written"):
        write_weights(to_llama(dict(model.named_parameters()), config).items(), folder)
        (folder / CONFIG).write_text(json.dumps(transformers_config(config, IDS)))
    del model
    facts = ModelFacts("it", False, n_parameters, config, imported=Imported("it", "nothing"))
    bundle = Bundle(folder, config, None, facts)  # type: ignore[arg-type]
    with stage("PyTorch's half"):
        expected = expect(load_reference(bundle), is_text_wanted=True)
    with stage("ONNX Runtime's half"):
        checks = compare_graph(bundle, expected, n_parameters)
    with stage("transformers"):
        assert expected.text
        checks.append(check_config(*expected.text, folder, expected.limits.logits))
    with stage("serving graph"):
        checks += write_serving_graphs(folder, config, ["fp32"], expected.limits.logits)
    with stage("sha256 of all"):
        write_facts(folder, facts)
    print(f"{time.monotonic() - began:6.1f} s in all")
    print_report(checks)


def read(source: Path) -> GPT:
    settings = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    config = read_config(settings, source / CONFIG, None)
    return model_of(config, from_llama(Weights(source), config), source)


def drawn(shape: str) -> GPT:
    sizes = dict(zip(SHAPE, map(int, shape.split(",")), strict=True))
    torch.manual_seed(0)
    return build_model(ModelConfig(**sizes))


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Print how long the block took and the most memory it had, as Linux counts it."""
    reset_peak()
    began = time.monotonic()
    yield
    seconds = time.monotonic() - began
    print(f"{seconds:6.1f} s {peak_memory() / 1e9:6.2f} GB  {name}", flush=True)


if __name__ == "__main__":
    main()
