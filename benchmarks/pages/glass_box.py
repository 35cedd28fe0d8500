"""What the probabilities that the view shows cost: tokens/s of one reply with and without them.

    python benchmarks/pages/glass_box.py [FOLDER ...] [--tokens 400] [--rounds 40]

Replies with and without take turns, each from the same seed; the ratio is of the medians.
"""

import argparse
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from gptcore.engine.generate import Request
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel, load_model
from gptcore.page.reply import ALTERNATIVES
from gptcore.text.chat_template import text_opening


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", default=["models/nano", "models/default"])
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    print("| model | tokens/s | with probabilities | ratio |\n|---|--:|--:|--:|")
    for folder in options.folders:
        model = load_model(folder, threads=1)
        opening, n = text_opening(model.tokenizer), options.tokens
        ids = [*opening, *model.tokenizer.encode("Once upon a time")]
        plain = Request(ids, Sampling(temperature=1.0), n, slide=True)
        arms = {"plain": plain, "told": replace(plain, n_top=ALTERNATIVES)}
        speeds: dict[str, list[float]] = {name: [] for name in arms}
        for seed in range(options.rounds + 1):
            for name, request in arms.items():
                sampling = replace(request.sampling, seed=seed)
                speeds[name].append(speed(model, replace(request, sampling=sampling)))
        plain_speed, told_speed = (statistics.median(values[1:]) for values in speeds.values())
        name = f"{model.bundle.name}, {model.variant}"
        ratio = told_speed / plain_speed
        print(f"| {name} | {plain_speed:.0f} | {told_speed:.0f} | {ratio:.3f} |", flush=True)


def speed(model: OnnxModel, request: Request) -> float:
    """Return tokens/s of a reply, after its first piece."""
    start, n_first, last = 0.0, 0, None
    for piece in model.engine.answer(request):
        if not start:
            start, n_first = time.perf_counter(), piece.n_new
        last = piece
    assert last is not None
    return (last.n_new - n_first) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
