"""Mutation testing: put one mistake at a time into the code, and run the tests that can see it.

    python benchmarks/mutation/mutants.py --out runs/mutants            # 200 mutants; half an hour
    python benchmarks/mutation/mutants.py --out runs/mutants --again    # what was not killed, again
    python benchmarks/mutation/mutants.py --out runs/mutants --table    # what is known so far

A mutant is killed when a test fails. The draw depends only on the seed and the sources. Results are
written to OUT/results.json at once, so the same command continues after an interruption.
Everything runs in copies of the checkout. A process that has imported torch forks one process for
each mutant, with a limit of processor time against endless loops; this needs Linux.
"""

import argparse
import gc
import hashlib
import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.mutation.edits import Mutation, mutations
from benchmarks.mutation.witness import Witness, read, write

# The files, and the tests that can see them, the likeliest and quickest first.
TESTS = {
    "gptcore/engine/sampling.py": "engine/test_sampling",
    "gptcore/text/chat_template.py": "text/test_chat runtime/test_conversation data/test_learned",
    "gptcore/engine/generate.py": (
        "engine/test_generate runtime/test_conversation engine/test_engine page/test_api"
    ),
    "gptcore/engine/scheduler.py": "engine/test_engine engine/test_conversations",
    "gptcore/engine/rows.py": "engine/test_engine engine/test_conversations",
    "gptcore/engine/slots.py": "engine/test_engine engine/test_serving engine/test_sessions",
    "gptcore/model.py": "engine/test_sessions export/test_variants",
    "gptcore/engine/onnx_session.py": "engine/test_sessions runtime/test_devices",
    "training/data/batches.py": "data/test_batches",
    "training/data/rows.py": "data/test_rows",
    "training/step.py": "training/test_step training/test_loop training/test_device",
    "training/loop.py": (
        "training/test_loop training/test_step training/test_training training/test_resume"
    ),
    "training/state.py": "training/test_step training/test_resume",
    "export/formats/to_onnx.py": "export/test_to_onnx export/test_export",
    "export/quantize/save.py": "export/test_variants",
}
# Folders that the tests' fixtures make once. Those in which a mutant has no part are made once
# for all of them.
PREPARED = {
    "gptcore": "chats.jsonl pairs.tsv run-tiny run-toy tiny toy variants base slow",
    "export": "chats.jsonl pairs.tsv run-tiny run-toy",
    "training": "chats.jsonl pairs.tsv",
}
IMPORTED = """
    numpy torch torch.onnx torch._dynamo onnx onnxruntime onnxscript safetensors.torch tokenizers
    tiktoken transformers matplotlib.pyplot gradio tqdm hypothesis pytest playwright.sync_api
    huggingface_hub jinja2
"""
PATIENCE = 3  # times the processor time that the unchanged code needs
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTEST_XDIST_WORKER": "mutant",  # the fixtures then look for the prepared folders
}


@dataclass(frozen=True)
class Mutant:
    path: str
    mutation: Mutation

    @property
    def key(self) -> str:
        """The same as long as the function's code is."""
        text = f"{self.path}\n{self.mutation.code}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Job:
    """A process that runs the tests of a file: of one mutant, or of the unchanged code."""

    path: str
    mutant: Mutant | None
    tree: Path  # its copy of the checkout
    folder: Path  # its log and what the tests write
    pid: int
    until: float  # of time.monotonic: a test may also wait for ever


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder for results and copies")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--files", nargs="+", default=list(TESTS), help="only their mutants")
    parser.add_argument("--again", action="store_true", help="run once more what was not killed")
    parser.add_argument("--table", action="store_true", help="only print the table")
    options = parser.parse_args()
    out = options.out.resolve()
    drawn = [m for m in draw(options.mutants, options.seed) if m.path in options.files]
    found = read(out / "results.json")
    if not options.table:
        over = {"killed"} if options.again else {"killed", "timed out", "survived"}
        left = [m for m in drawn if found.get(m.key, {}).get("result") not in over]
        run(left, found, out, options.processes)
    print(table(drawn, found))


@cache
def all_mutants() -> list[Mutant]:
    """Of every file of the table that there is."""
    sources = {p: (ROOT / p).read_text(encoding="utf-8") for p in TESTS if (ROOT / p).exists()}
    return [Mutant(path, m) for path, source in sources.items() for m in mutations(source)]


def draw(n: int, seed: int) -> list[Mutant]:
    """n mutants in a random order, which each one's own text decides: a change of the sources
    changes the draw only where they differ."""

    def rank(mutant: Mutant) -> bytes:
        text = f"{seed}\n{mutant.path}\n{mutant.mutation.before}\n{mutant.mutation.after}"
        return hashlib.sha256(text.encode()).digest()

    return sorted(all_mutants(), key=rank)[:n]


# ------------------------------------------------------------------ running


def run(left: list[Mutant], found: dict[str, dict], out: Path, processes: int) -> None:
    """Run mutants, several at a time, and note what becomes of each."""
    os.environ |= ENVIRONMENT
    for name in IMPORTED.split():
        importlib.import_module(name)
    gc.freeze()
    tree = copy_checkout(out)
    paths = [path for path in TESTS if any(mutant.path == path for mutant in left)]
    unknown = [path for path in paths if not costs_file(out, path).exists()]
    jobs = ((lambda free, path=path: start(path, None, tree, out, 3600)) for path in unknown)
    for job, result in finished(jobs, [tree] * processes):
        if result["by"]:
            costs_file(out, job.path).unlink(missing_ok=True)
            sys.exit(f"{job.path}: the unchanged code fails {result['by']}: {job.folder / 'log'}")
    seconds = {path: sum(read(costs_file(out, path)).values()) for path in paths}
    print("seconds of processor time for the unchanged code:", seconds, flush=True)
    trees = [tree, *(out / f"tree-{number}" for number in range(1, processes))]
    for other in trees[1:]:
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(tree, other)
    jobs = (
        (lambda free, m=m: start(m.path, m, free, out, 20 + PATIENCE * seconds[m.path]))
        for m in left
    )
    for n, (job, result) in enumerate(finished(jobs, trees), 1):
        found[job.mutant.key] = result
        write(out / "results.json", found)
        place = f"{job.path}:{job.mutant.mutation.line}"
        print(f"{n} of {len(left)}: {place} {result['result']}", flush=True)


def finished(
    starts: Iterator[Callable[[Path], "Job"]], trees: list[Path]
) -> Iterator[tuple["Job", dict]]:
    """Start jobs as trees get free; each with its result."""
    free, running = list(trees), []
    while True:
        while free and (begin := next(starts, None)):
            running.append(begin(free.pop()))
        if not running:
            return
        for job in list(running):
            if result := end(job):
                running.remove(job)
                free.append(job.tree)
                yield job, result
        time.sleep(0.05)


def copy_checkout(out: Path) -> Path:
    """A copy of the checkout, also of what is not committed. What earlier runs learned of the
    unchanged code is forgotten where a file that matters has changed."""
    tree = out / "tree-0"
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if (ROOT / name).is_file()]
    for name in names:
        old, new = tree / name, (ROOT / name).read_bytes()
        if not old.exists() or old.read_bytes() != new:
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, old)
    for old in tree.rglob("*.py"):
        if not (ROOT / old.relative_to(tree)).exists():
            old.unlink()
    subprocess.run([sys.executable, "-m", "compileall", "-q", tree], check=True)
    sources = [name for name in names if name.split("/")[0] in ("gptcore", "training", "export")]
    for folder in (out / "prepared", out / "costs"):
        forget(folder, digest([*sources, "tests/conftest.py", "tests/trained.py"]))
    for path, tests in TESTS.items():
        files = [f"tests/{name}.py" for name in tests.split()]
        forget(costs_file(out, path), digest(files))
    return tree


def digest(names: list[str]) -> str:
    found = hashlib.sha256()
    for name in names:
        found.update(name.encode() + (ROOT / name).read_bytes())
    return found.hexdigest()


def forget(path: Path, seal: str) -> None:
    """Remove what was made under another seal."""
    sealed = path.parent / f"{path.name}.seal"
    if not sealed.exists() or sealed.read_text() != seal:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        sealed.parent.mkdir(parents=True, exist_ok=True)
        sealed.write_text(seal)


def costs_file(out: Path, path: str) -> Path:
    """The processor time of each test of the unchanged code."""
    return out / "costs" / path.replace("/", "-").replace(".py", ".json")


def start(path: str, mutant: Mutant | None, tree: Path, out: Path, limit: float) -> Job:
    """Fork a process for a file's tests; `limit` is of its processor time, in seconds."""
    folder = out / "jobs" / (mutant.key if mutant else costs_file(out, path).stem)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    if mutant:
        (tree / path).write_text(mutant.mutation.source, encoding="utf-8")
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(run_tests(path, tree, folder, out, int(limit), is_mutant=bool(mutant)))
        finally:
            os._exit(99)
    return Job(path, mutant, tree, folder, pid, time.monotonic() + 60 + 10 * limit)


def run_tests(path: str, tree: Path, folder: Path, out: Path, limit: int, is_mutant: bool) -> int:
    """In the forked process: pytest's exit status."""
    os.setsid()
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.dont_write_bytecode = is_mutant
    base = folder / "base" if is_mutant else out / "prepared"
    base.mkdir(exist_ok=True)
    for name in PREPARED[path.split("/")[0]].split():
        if is_mutant and (out / "prepared" / name).exists():
            (base / name).symlink_to(out / "prepared" / name)
    os.environ |= {"TMPDIR": str(folder / "tmp"), "XDG_CACHE_HOME": str(folder / "cache")}
    os.chdir(tree)
    sys.path[:2] = [str(tree)]  # in place of the checkout and its benchmarks/

    import hypothesis
    import pytest

    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]  # no search for smaller ones
    hypothesis.settings.register_profile("m", derandomize=True, database=None, phases=phases)
    hypothesis.settings.load_profile("m")
    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--override-ini=addopts="]
    words += ["-m", "not peers", f"--basetemp={base / folder.name}"]
    files = [f"tests/{name}.py" for name in TESTS[path].split()]
    witness = Witness(files, folder / "failed", costs_file(out, path))
    return int(pytest.main([*words, *files], plugins=[witness]))


def end(job: Job) -> dict | None:
    """What became of a job; None while it runs."""
    if time.monotonic() > job.until:
        os.killpg(job.pid, signal.SIGKILL)
    pid, status, usage = os.wait4(job.pid, os.WNOHANG)
    if pid == 0:
        return None
    with suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)  # what its tests may have left running
    code = os.waitstatus_to_exitcode(status)
    is_over = code in (-signal.SIGXCPU, -signal.SIGKILL)
    failed = job.folder / "failed"
    by = failed.read_text() if failed.exists() else f"exit status {code}"
    found = {
        "result": "timed out" if is_over else "killed" if code else "survived",
        "by": by if code else None,
        "seconds": round(usage.ru_utime + usage.ru_stime, 1),
    }
    if job.mutant:
        shutil.copy2(ROOT / job.path, job.tree / job.path)
        shutil.rmtree(job.folder / "base", ignore_errors=True)
        m = job.mutant.mutation
        found |= {"path": job.path, "line": m.line, "before": m.before, "after": m.after}
    return found


# ------------------------------------------------------------------ the table


def table(drawn: list[Mutant], found: dict[str, dict]) -> str:
    """Markdown: how many mutants of each file were killed, and which survived."""
    lines = ["| file | mutants | killed | timed out | survived | share killed |"]
    lines.append("|------|--------:|-------:|----------:|---------:|-------------:|")
    done = [(m, found[m.key]["result"]) for m in drawn if m.key in found]
    paths = [path for path in TESTS if any(m.path == path for m, _ in done)]
    for name, chosen in [*((path, [path]) for path in paths), ("all", paths)]:
        results = [result for m, result in done if m.path in chosen]
        counts = [results.count(kind) for kind in ("killed", "timed out", "survived")]
        cells = [name, len(results), *counts, f"{counts[0] / max(len(results), 1):.1%}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "| not killed | before | after |", "|------------|--------|-------|"]
    for m, result in sorted(done, key=lambda entry: (entry[0].path, entry[0].mutation.line)):
        if result != "killed":
            place = f"{m.path}:{m.mutation.line}" + f" ({result})" * (result == "timed out")
            texts = (m.mutation.before, m.mutation.after)
            before, after = (text.replace("|", "\\|") for text in texts)
            lines.append(f"| {place} | `{before}` | `{after}` |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
