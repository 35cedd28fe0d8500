"""Decoding speed of other runtimes with the same weights, interleaved in one run.

    python benchmarks/serving/peers.py [--preset small | --folder models/mine] [--rounds 5]

Without --folder the weights are random, which does not change the speed. Each runtime has its own
process. Each round decodes a few tokens with every contender in turn; figures are medians over the
rounds. A folder's number formats (gptcore int8, onnxruntime-genai int8) and llama.cpp's f16 are
contenders, too.
"""

import argparse
import dataclasses
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np

from export.folder.serving import write_serving_graphs
from export.folder.write import write_model
from export.gguf.write import write_gguf
from export.runtimes.environments import PEERS, PeerError, Running, start
from export.verify.report import TOLERANCE
from gptcore.bundle import load_bundle, write_facts
from gptcore.config import DECODERS
from gptcore.facts import ModelFacts
from gptcore.nn import build_model, count_parameters
from gptcore.text.tokenizer import SPECIAL_TOKENS, Tokenizer

READ_ANY_FILE = ("onnxruntime", "onnxruntime-genai", "openvino")
RUNTIMES = ("gptcore", "onnxruntime", "onnxruntime-genai", "llama.cpp", "transformers", "pytorch")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runtimes", nargs="+", default=RUNTIMES, choices=PEERS)
    parser.add_argument("--preset", default="small", choices=DECODERS)
    parser.add_argument("--folder", type=Path, help="a model folder, in place of a preset")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=32, help="tokens of a turn (default: 32)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--contexts", type=int, nargs="+", default=[64, 512])
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder
        if folder is None:
            folder = Path(temporary) / "model"
            write_random(options.preset, max(options.contexts) + options.steps, folder)
        contenders = sources(folder, options.runtimes, Path(temporary))
        vocab_size = load_bundle(folder).config.vocab_size
        print(f"{folder.name if options.folder else options.preset}, {options.rounds} rounds")
        print(f"{'contender':20}{'threads':>8}{'context':>9}{'tokens/s':>10}{'to ours':>9}")
        for threads in options.threads:
            with ExitStack() as stack:
                peers = start_all(contenders, threads, stack)
                for context in options.contexts:
                    speeds = measure(peers, context, vocab_size, options.steps, options.rounds)
                    for name, speed in speeds.items():
                        ratio = speed / speeds["gptcore"]
                        print(f"{name:20}{threads:8}{context:9}{speed:10.0f}{ratio:8.2f}x")


def write_random(preset: str, block_size: int, folder: Path) -> None:
    """Write the folder of an untrained model, whose tokens are bytes and pairs of bytes."""
    config = dataclasses.replace(DECODERS[preset], block_size=block_size)
    model = build_model(config)
    n_pairs = config.vocab_size - 256 - len(SPECIAL_TOKENS)
    tokens = [bytes([i]) for i in range(256)] + [bytes(divmod(i, 256)) for i in range(n_pairs)]
    tokenizer = Tokenizer({token: rank for rank, token in enumerate(tokens)})
    folder.mkdir()
    write_model(model, tokenizer, False, folder)
    write_serving_graphs(folder, config, ["fp32"], TOLERANCE)
    write_facts(folder, ModelFacts(preset, False, count_parameters(model), config))


def sources(
    folder: Path, runtimes: list[str], temporary: Path
) -> dict[str, tuple[str, Path, tuple[str, ...]]]:
    """Return contender -> (runtime, path of the model, options); ours is always the first."""
    variants = load_bundle(folder).variants
    first = next(iter(variants))  # fp32, where the folder has it
    found = {"gptcore": ("gptcore", folder, (first,))}
    for variant in list(variants)[1:]:
        found[f"gptcore {variant}"] = ("gptcore", folder, (variant,))
    for name in runtimes:
        if name in READ_ANY_FILE:
            for variant, file in variants.items():
                label = name if variant == first else f"{name} {variant}"
                found[label] = (name, folder, (f"onnx/{file.name}",))
            continue
        if name != "llama.cpp":
            found.setdefault(name, (name, folder, ()))
            continue
        for dtype in ("f32", "f16"):
            path = temporary / f"{dtype}.gguf"
            write_gguf(folder, path, dtype)
            found[f"llama.cpp {dtype}"] = (name, path, (dtype,))
    return found


def start_all(contenders: dict, threads: int, stack: ExitStack) -> dict[str, Running]:
    peers = {}
    for name, (runtime, path, variant) in contenders.items():
        try:
            peers[name] = stack.enter_context(start(runtime, path, threads, *variant))
        except PeerError as error:
            print(f"{name:20} missing: {error}")
    return peers


def measure(
    peers: dict[str, Running], context: int, vocab_size: int, steps: int, rounds: int
) -> dict[str, float]:
    """Return each contender's tokens per second after `context` tokens, measured in turns."""
    prompt = np.random.default_rng(0).integers(0, vocab_size, context).tolist()
    speeds: dict[str, list[float]] = {name: [] for name in peers}
    for turn in range(rounds + 1):
        for name, peer in peers.items():
            seconds = peer.ask([prompt], steps)["seconds"]
            if turn:  # the first is a warm-up
                speeds[name].append((steps - 1) / seconds)
    return {name: statistics.median(values) for name, values in speeds.items()}


if __name__ == "__main__":
    main()
