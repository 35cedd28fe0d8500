"""How long the commands from a text to a page of its model are silent, in a terminal.

    python benchmarks/training/silences.py [--text README.md] [--spinning 2] [--longest 2]

Each command runs in a pseudo-terminal; a silence is the time between two outputs, the start and the
end included. --spinning programs use the cores meanwhile. Exit code 1 if one is over --longest.
"""

import argparse
import os
import pty
import re
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.training.busy import spinning

MARKS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # of colours and of the cursor
ROAD = (
    "training look {text}",
    "training {text} --preset tiny --set steps=60 --out run",
    "training {text} --minutes 1 --plan --out planned",
    "training doctor run",
    "training report run",
    "training shards {text} --shards shards",
    "training evaluate run --data {text}",
    "export run --out model --quantize int8,q8",
    "export verify model",
    "export inspect model",
    "export ship model --out small",
    "export space model --out space",
    "export web model --out site",
    "training evaluate model --data {text}",
    "training evaluate {root}/models/nano",
    "training translate pairs.tsv --set steps=10 --out pairs",
    "export pairs --out translator",
    "export score translator pairs.tsv",
)


class Silence(NamedTuple):
    seconds: float
    after: str  # what was told last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, default=ROOT / "README.md")
    parser.add_argument("--spinning", type=int, default=0, help="number of spinning programs")
    parser.add_argument("--longest", type=float, default=2, help="seconds")
    options = parser.parse_args()
    too_long = 0
    print("| python -m | seconds | longest silence | after |\n|---|--:|--:|---|")
    with tempfile.TemporaryDirectory() as folder, spinning(options.spinning):
        pairs = (
            f"{n} apples and {m} pears\t{m} poires et {n} pommes"
            for n, m in product(range(20), repeat=2)
        )
        (Path(folder) / "pairs.tsv").write_text("\n".join(pairs), encoding="utf-8")
        for line in ROAD:
            command = line.format(text=options.text.resolve(), root=ROOT)
            started = time.perf_counter()
            longest = max(silences([sys.executable, "-m", *command.split()], Path(folder)))
            too_long += longest.seconds > options.longest
            told = line.format(text=options.text.name, root=".")
            seconds = time.perf_counter() - started
            print(
                f"| {told} | {seconds:.1f} | {longest.seconds:.1f} | {longest.after} |", flush=True
            )
    sys.exit(1 if too_long else 0)


def silences(command: list[str], folder: Path) -> Iterator[Silence]:
    """Run a command in a terminal of its own; yield each silence, with the last line before it."""
    pid, terminal = pty.fork()
    if pid == 0:
        termios.tcsetwinsize(0, (40, 120))  # bars are not drawn in one of no width
        os.chdir(folder)
        os.environ |= {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
        os.execv(command[0], command)
    before, told = time.perf_counter(), "the start"
    while True:
        try:
            read = os.read(terminal, 2**16)
        except OSError:  # the other end was closed
            read = b""
        now = time.perf_counter()
        yield Silence(now - before, told)
        if not read:
            break
        before = now
        lines = re.split(r"[\r\n]+", MARKS.sub("", read.decode(errors="replace")).strip())
        told = lines[-1].strip()[:60].replace("|", "/") or told
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        sys.exit(f"{' '.join(command)}: exit code {status}: {told}")


if __name__ == "__main__":
    main()
