"""A test of everything on a real GPU, from training to decoding, with a table as the result.

    python benchmarks/gpu.py --out gpu.md
    python benchmarks/gpu.py --out gpu.md --wheels slices/1 slices/2    # carried packages first
    python benchmarks/gpu.py --device cpu --preset tiny --steps 12 --text README.md --out cpu.md

Each stage of benchmarks/gpu_stages.py runs in its own process. A stage that fails or takes too
long becomes a row "left out" with its reason, and the other stages still run. The results are kept
in --work, so the same command continues after an interruption, and repeats the stages that were
left out. --device cpu hides the GPU and compiles nothing; it only tests the script.

For a machine without a network, --wheels names folders with .whl files, whole or cut by
`split -b 60M X.whl X.whl.`; the slices of a wheel may be in several folders.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import zipfile
import zlib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGES = {  # stage -> title, in an order in which each finds what it needs
    "machine": "the machine",
    "train": "training",
    "eager": "training, not compiled",
    "mfu": "training a larger model",
    "evaluate": "python -m training evaluate",
    "resume": "killed, then --resume",
    "fsdp": "parallel=fsdp, one process",
    "export": "python -m export --quantize fp16",
    "session": "ONNX Runtime, fp32",
    "fp16": "ONNX Runtime, fp16",
    "decode": "decoding, one row",
}
LEFT_OUT = "left out"
ON_A_CPU = "**A run on a CPU: it proves that the script works, and nothing about a GPU or speed.**"
Row = tuple[str, str]  # a quantity and its value, or LEFT_OUT and the reason


def main() -> None:
    options = parse()
    work = options.work.resolve()
    (work / "rows").mkdir(parents=True, exist_ok=True)
    if options.wheels:
        install(options.wheels, work)
    settings = {
        "device": options.device,
        "work": str(work),
        "preset": options.preset,
        "large": options.large,
        "steps": options.steps,
        "text": [str(path.resolve()) for path in options.text],
    }
    for name in options.stages:
        path = work / "rows" / f"{name}.json"
        if is_done(path) and not options.again:
            continue
        print(f"{name}: {STAGES[name]} ...", flush=True)
        started = time.perf_counter()
        rows = run_stage(name, settings, work, options.limit)
        rows.append(("took", f"{time.perf_counter() - started:.0f} s"))
        path.write_text(json.dumps(rows), encoding="utf-8")
        print("".join(f"    {what}: {figure}\n" for what, figure in rows), end="", flush=True)
        options.out.write_text(table(work, options.device), encoding="utf-8")
    options.out.write_text(table(work, options.device), encoding="utf-8")
    print(f"the table is in {options.out}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--preset", default="small", help="preset to train (small)")
    parser.add_argument("--large", default="base", help="the preset whose MFU is measured (base)")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--text", nargs="*", type=Path, default=[], help="default: own dialogues")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--again", action="store_true", help="repeat the finished stages, too")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for a stage (240)")
    parser.add_argument("--wheels", nargs="+", type=Path, default=[], help="see above")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/gpu"), help="folder for all results"
    )
    parser.add_argument("--out", type=Path, default=Path("gpu.md"), help="the table to write")
    return parser.parse_args()


def is_done(path: Path) -> bool:
    if not path.is_file():
        return False
    return all(what != LEFT_OUT for what, _ in json.loads(path.read_text(encoding="utf-8")))


def run_stage(name: str, settings: dict, work: Path, limit_s: float) -> list[Row]:
    """Run a stage and return its rows, or one row with the reason why it was left out."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if settings["device"] == "cpu" else {}
    paths = os.pathsep.join([str(work / "site"), str(ROOT)])
    environment = {"PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    log = work / f"{name}.log"
    with open(log, "w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_stages", name, json.dumps(settings)],
            cwd=ROOT,
            env=os.environ | environment | hidden,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # the whole process group
            return [(LEFT_OUT, f"it took more than {limit_s:g} s")]
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
    if code:
        return [(LEFT_OUT, f"{lines[-1][:200]} (exit code {code})")]
    return [tuple(row) for row in json.loads(lines[-1])]


def table(work: Path, device: str) -> str:
    """Return all rows so far as a Markdown table."""
    words = " ".join(word if word.isprintable() else "?" for word in sys.argv[1:])
    lines = [
        "# The road on a GPU",
        "",
        f"`python benchmarks/gpu.py {words}`, {time.strftime('%Y-%m-%d')}.",
        "",
    ]
    if device == "cpu":
        lines += [ON_A_CPU, ""]
    lines += ["| stage | what | |", "|---|---|---|"]
    for name, title in STAGES.items():
        path = work / "rows" / f"{name}.json"
        rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        for what, figure in rows or [(LEFT_OUT, "not run yet")]:
            lines.append(f"| {title} | {what} | {figure.replace('|', '/')} |")
            title = ""
    return "\n".join(lines) + "\n"


def install(folders: list[Path], work: Path) -> None:
    """Join cut wheels, and install all wheels into a folder that the stages search first."""
    wheels = [*join_slices(folders, work / "wheels")]
    wheels += [path for folder in folders for path in sorted(folder.glob("*.whl"))]
    if not wheels:
        raise SystemExit(f"no wheels in {', '.join(map(str, folders))}")
    print(f"installing {', '.join(wheel.name for wheel in wheels)}", flush=True)
    options = ["--quiet", "--no-index", "--no-deps", "--upgrade", "--target", str(work / "site")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *wheels], check=True)


def join_slices(folders: list[Path], target: Path) -> list[Path]:
    """Join X.whl.aa, X.whl.ab and so on into X.whl. Raises SystemExit if a slice is missing."""
    slices = defaultdict(list)
    for path in sorted((p for f in folders for p in f.glob("*.whl.*")), key=lambda p: p.name):
        slices[path.name[: path.name.index(".whl.") + 4]].append(path)
    target.mkdir(parents=True, exist_ok=True)
    for name, parts in slices.items():
        (target / name).write_bytes(b"".join(part.read_bytes() for part in parts))
        try:
            with zipfile.ZipFile(target / name) as wheel:
                damaged = wheel.testzip()
        except (zipfile.BadZipFile, zlib.error, OSError, ValueError) as error:
            damaged = str(error)
        if damaged:
            found = ", ".join(part.name for part in parts)
            raise SystemExit(f"{name} is not whole ({damaged}): there are only the slices {found}")
    return [target / name for name in slices]


if __name__ == "__main__":
    main()
