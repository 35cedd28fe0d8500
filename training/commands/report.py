"""python -m training report RUN...: write an HTML report of one or several runs.

python -m training report runs/mine                    runs/mine/report.html, with earlier runs
python -m training report runs/a runs/b --out ab.html  a comparison of these runs
"""

import argparse
from pathlib import Path

from gptcore.checks import UserError
from training.report.history import History
from training.report.report import write_page
from training.run.directory import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, help="run directories, finished or not")
    parser.add_argument(
        "--out", type=Path, help="file to write (RUN/report.html; for several runs, report.html)"
    )


def run(options: argparse.Namespace) -> int:
    runs = [Run.load(path) for path in options.runs]
    out = options.out or (runs[0].path if len(runs) == 1 else Path()) / "report.html"
    if out.is_dir():
        raise UserError(f"--out {out} is a folder: name a file in it")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}; make it first")
    print(f"wrote {write_page([History(run) for run in runs], out)}")
    return 0
