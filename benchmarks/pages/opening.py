"""From a command to its page: seconds until the first answered request, beside `import gradio`.

    python benchmarks/pages/opening.py [--rounds 6]

All take turns; the ratios are of the medians, and of the fastest, which other programs disturb
least.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.crowds.servers import ROOT, free_port, running

GRADIO = "import gradio"
OURS = "import gptcore.gradio.build"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    arms: dict[str, Callable[[], float]] = {
        "import gradio": lambda: python(GRADIO),
        "the page's imports": lambda: python(OURS),
        "the page": open_page,
    }
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(options.rounds + 1):
        for name, arm in arms.items():
            start = time.perf_counter()
            times[name].append(arm() - start)
    times = {name: seconds[1:] for name, seconds in times.items()}  # the first fills the caches
    first = times["import gradio"]
    print("| | median, s | ratio | fastest, s | ratio |\n|---|--:|--:|--:|--:|")
    for name, seconds in times.items():
        middle, least = statistics.median(seconds), min(seconds)
        ratios = middle / statistics.median(first), least / min(first)
        print(f"| {name} | {middle:.2f} | {ratios[0]:.2f} | {least:.2f} | {ratios[1]:.2f} |")


def python(code: str) -> float:
    """Run code in a process of its own; return the moment at which it has ended."""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    return time.perf_counter()


def open_page() -> float:
    """Return the moment at which the page has answered; ending it does not count."""
    port = free_port()
    with running("the page", [sys.executable, "app.py", "--port", port], port):
        return time.perf_counter()


if __name__ == "__main__":
    main()
