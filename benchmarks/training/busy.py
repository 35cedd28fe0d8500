"""Speed by number of threads on idle and on busy cores, for training and translation.

    python benchmarks/training/busy.py [--spinning 1] [--rounds 5] [--translator DIR]

Each form runs in its own process, which works for a second on request; the forms take turns.
Training means plain steps of `nano` with 4 rows of 128 tokens; translation means a beam of 20
tokens. Figures are medians, relative to one thread beside the same number of spinning programs.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gptcore.system.cores import n_cores, share_of_cores

TRANSLATOR = ROOT / "tests" / "fixtures" / "tiny" / "translator"
POLICY = "OMP_WAIT_POLICY"
ALL = str(n_cores())
# Form -> (work, number of threads, waiting policy of OpenMP's threads).
FORMS = {
    "train, one thread": ("train", "1", None),
    "train, all cores, waiting threads spin": ("train", ALL, None),
    "train, all cores, waiting threads sleep": ("train", ALL, "passive"),
    "translate, one thread": ("translate", "1", None),
    "translate, all cores": ("translate", ALL, None),
    "translate, measured": ("translate", "0", None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spinning", type=int, default=1, help="number of spinning programs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--translator", default=str(TRANSLATOR), help="a translator's folder")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(*options.worker, options.translator)
        return
    print(f"{processor()}, {ALL} cores; a product of 2048 x 2048 on one: {gflops():.0f} GFLOPS")
    numbers = (0, options.spinning)
    shares, columns = zip(*(measure(n, options) for n in numbers))
    heads = [f"{n} spinning, {share:.0%} of the cores left" for n, share in zip(numbers, shares)]
    print(f"| tokens/s | {' | '.join(heads)} |\n|---|---|---|")
    for name, (kind, *_) in FORMS.items():
        cells = [f"{c[name]:,.0f} ({c[name] / c[f'{kind}, one thread']:.2f})" for c in columns]
        print(f"| {name} | {' | '.join(cells)} |")


def measure(n_spinning: int, options: argparse.Namespace) -> tuple[float, dict[str, float]]:
    """Return the share of the cores that is left, and the median speed of each form."""
    with spinning(n_spinning):
        share = share_of_cores()
        workers = {name: start(*form, options.translator) for name, form in FORMS.items()}
        speeds: dict[str, list[float]] = {name: [] for name in FORMS}
        for _ in range(options.rounds):
            for name, worker in workers.items():
                speeds[name].append(ask(worker))
        for worker in workers.values():
            worker.communicate()
    return share, {name: statistics.median(values) for name, values in speeds.items()}


@contextmanager
def spinning(n: int) -> Iterator[None]:
    command = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(command) for _ in range(n)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def start(kind: str, threads: str, policy: str | None, translator: str) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if k not in (POLICY, "OMP_NUM_THREADS")}
    environment |= {"OMP_NUM_THREADS": threads} if kind == "train" else {}
    environment |= {POLICY: policy} if policy else {}
    command = [sys.executable, __file__, "--worker", kind, threads, "--translator", translator]
    pipe = subprocess.PIPE
    worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
    worker.stdout.readline()  # it is ready
    return worker


def ask(worker: subprocess.Popen) -> float:
    """Return tokens per second."""
    worker.stdin.write("\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def serve(kind: str, threads: str, translator: str) -> None:
    work = trainer() if kind == "train" else translates(translator, int(threads) or None)
    work()  # the first one allocates
    print("ready", flush=True)
    for _ in sys.stdin:
        began, n_tokens = time.perf_counter(), 0
        while (seconds := time.perf_counter() - began) < 1:
            n_tokens += work()
        print(n_tokens / seconds, flush=True)


def trainer() -> Callable[[], int]:
    """Return a function that takes a training step and returns its number of tokens."""
    import torch
    from torch.nn import functional as F

    from gptcore.config import PRESETS
    from gptcore.nn import build_model
    from gptcore.nn.gpt import whole_sequence
    from training.machine.fast_attention import use_fast_attention

    model = build_model(PRESETS["nano"]).train()
    use_fast_attention(model, torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 256, (4, min(128, model.config.block_size)))

    def step() -> int:
        logits, _ = model(**whole_sequence(ids))
        F.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        return ids.numel()

    return step


def translates(folder: str, threads: int | None) -> Callable[[], int]:
    """Return a function that translates once and returns its number of tokens."""
    from gptcore.translation.onnx import load_translator

    model = load_translator(folder, threads, "cpu")
    n_tokens = min(20, model.config.block_size)

    def run() -> int:
        session = model.session()
        session.begin([0] * n_tokens)
        for _ in range(n_tokens):
            session.step([0], [0])
        return n_tokens

    return run


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.split(": ")[1] for line in lines if line.startswith("model name"))


def gflops() -> float:
    """Return the GFLOPS of the fastest of five matrix products on one thread."""
    program = """
import time, torch
a, seconds = torch.ones(2048, 2048), []
for _ in range(5):
    began = time.perf_counter()
    a @ a
    seconds.append(time.perf_counter() - began)
print(2 * 2048**3 / min(seconds) / 1e9)
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program]
    return float(subprocess.check_output(command, env=environment, text=True))


if __name__ == "__main__":
    main()
