"""Resident memory in each phase of a training, on a large text and on a small one.

    python benchmarks/training/memory.py [--gigabytes 2] [--steps 40] [--preset nano] [--folder DIR]

The script writes a text of generated dialogues, trains on it with the usual command, and samples
the resident memory of that process. It does the same with 3 MB of text; the last column is the
difference, which is the memory that the size of the corpus costs.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tqdm import tqdm

from benchmarks.memory import resident
from training.data.corpus import document_text
from training.dialogues.generator import dialogues

SMALL_BYTES = 3_000_000
BASE_BYTES = 10_000_000  # generated text; a larger text repeats it with other numbers
INTERVAL = 0.05  # seconds between two samples
# Part of the line that the command prints at the beginning of a phase -> phase.
PHASES = {
    "training a tokenizer": "tokenizer",
    "tokenising": "tokenising",
    " parameters on ": "training",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--preset", default="nano")
    parser.add_argument(
        "--folder", type=Path, help="folder for all files; needs about 4 times the text's size"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        texts = {"small": SMALL_BYTES, "large": int(options.gigabytes * 1e9)}
        peaks = {}
        for name, n_bytes in texts.items():
            path = Path(folder) / f"{name}.txt"
            write_text(path, n_bytes)
            peaks[name] = measure(path, Path(folder) / name, options.preset, options.steps)
    own_need = max(peak for peak, _ in peaks["small"].values())
    print(f"{options.preset}, {options.steps} steps; resident memory at its highest, MB")
    print(f"{'phase':12}{'small':>8}{'large':>8}{'seconds':>9}{'above the own need':>20}")
    for phase, (peak, seconds) in peaks["large"].items():
        small = peaks["small"][phase][0]
        print(f"{phase:12}{small:8.0f}{peak:8.0f}{seconds:9.1f}{peak - own_need:20.0f}")


def write_text(path: Path, n_bytes: int) -> None:
    written = 0
    with (
        open(path, "w", encoding="utf-8") as file,
        tqdm(total=n_bytes, unit="B", unit_scale=True) as bar,
    ):
        for text in texts():
            file.write(text)
            bar.update(len(text))  # it is nearly all ASCII
            written += len(text)
            if written >= n_bytes:
                break


def texts() -> Iterator[str]:
    """Yield different dialogues without end, faster than the generator, which would take hours."""
    made, length = [], 0
    for number, dialogue in enumerate(dialogues(seed=1)):
        made.append(document_text(dialogue))
        length += len(made[-1])
        yield f"{number}\n{made[-1]}\n"
        if length >= BASE_BYTES:
            break
    for number in count(len(made)):
        # Two halves that have not stood together, and words of their own for the tokenizer.
        i, shift = number % len(made), number // len(made)
        yield f"{number}\nx{number:x}\n{made[i]}\n{made[(i + 7919 * shift) % len(made)]}\n"


def measure(text: Path, folder: Path, preset: str, steps: int) -> dict[str, tuple[float, float]]:
    """Return peak MB and seconds of each phase of `python -m training TEXT`."""
    command = [sys.executable, "-u", "-m", "training", str(text), "--out", str(folder / "run")]
    command += ["--preset", preset, "--set", f"steps={steps}"]
    # Small batches, so that the model's own need does not hide what else is resident.
    command += ["--set", "batch_size=4", "--set", "micro_batch_size=4"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    peaks: dict[str, tuple[float, float]] = {}
    phase = "reading"

    def sample() -> None:
        last = time.perf_counter()
        while process.poll() is None:
            time.sleep(INTERVAL)
            now, (peak, seconds) = time.perf_counter(), peaks.get(phase, (0.0, 0.0))
            peaks[phase] = (max(peak, resident(process.pid) / 1e6), seconds + now - last)
            last = now

    thread = threading.Thread(target=sample)
    thread.start()
    for line in process.stdout:
        print(f"  {line}", end="")
        phase = next((name for sign, name in PHASES.items() if sign in line), phase)
    thread.join()
    if process.returncode:
        sys.exit(process.returncode)
    return peaks


if __name__ == "__main__":
    main()
