"""Durability of a run: real kills, damaged checkpoints and settings, and a full disk.

    python benchmarks/training/durability.py --kills 50 --damages 200
    python benchmarks/training/durability.py --kills 10 --damages 0 --processes 2     # of torchrun

The same command (or torchrun, for several processes) restarts a killed run, which must end with
the weights, moments and metrics of a run that was never killed. The full disk is a tmpfs of a few
MB, so this needs Linux.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gptcore.checks import UserError
from gptcore.nn.checkpoint import MODEL, STATE, first_sound
from gptcore.system.files import list_checkpoints
from training.data.shards.folder import load_shards
from training.run.directory import Run

SETTINGS = {
    "n_layer": 1,
    "block_size": 64,
    "vocab_size": 400,
    "batch_size": 4,
    "micro_batch_size": 1,
    "dropout": 0.1,
    "dtype": "float32",
    "log_every": 1,
    "save_every": 3,
    "eval_every": 100,
}
STEPS_A_KILL = 25
EARLY = 0.1  # share of the kills that come while the process is still starting
DISK = "4m"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = STEPS_A_KILL * options.kills + 12
        run(command(folder / "whole", steps, options.processes))
        if options.kills:
            kill(folder, steps, options.processes, options.kills, rng)
        if options.damages:
            damage(folder / "whole" / "checkpoints", options.damages, rng)
            damage_records(folder / "whole", options.damages, rng)
            fill_disk(folder)


def command(out: Path, steps: int, processes: int = 1, restarts: int = 0) -> list[str]:
    """Return the command that starts or resumes the run in `out`."""
    settings = [f"--set={key}={value}" for key, value in (SETTINGS | {"steps": steps}).items()]
    words = ["-m", "training", str(ROOT / "README.md"), "--preset=tiny", *settings]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    torchrun += [f"--max-restarts={restarts}", "--monitor-interval=0.1"]
    launcher = torchrun if processes > 1 else []
    return [sys.executable, *launcher, *words, "--out", str(out), "--resume", "--timeout=60"]


def run(words: list[str]) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kill(folder: Path, steps: int, processes: int, n_kills: int, rng: random.Random) -> None:
    """Kill a run at random moments; its end must equal that of an uninterrupted run."""
    out, in_save, started = folder / "killed", 0, time.monotonic()
    process = None
    for _ in range(n_kills):
        if process is None or processes == 1:  # torchrun starts its processes again by itself
            log = open(folder / "log", "a")
            words = command(out, steps, processes, n_kills)
            process = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log)
        if rng.random() < EARLY:
            time.sleep(rng.uniform(0, 2))
        else:
            wait_for_a_step(out, process)
            time.sleep(rng.uniform(0, 0.4))
        assert process.poll() is None, f"it ended too early:\n{(folder / 'log').read_text()}"
        victims = [process.pid] if processes == 1 else workers_of(process.pid)
        for victim in rng.sample(victims, min(1, len(victims))):
            os.kill(victim, signal.SIGKILL)
        if processes == 1:
            process.wait()
        in_save += any(out.glob("checkpoints/*.tmp"))
    if processes == 1:
        run(command(out, steps))
    else:
        assert process.wait() == 0, (folder / "log").read_text()
    resumes = (folder / "log").read_text().count("resuming from")
    assert contents(out) == contents(folder / "whole"), "the end is another one"
    print(
        f"{n_kills} kills of {processes} process(es), {in_save} of them inside a save; {resumes} "
        f"resumes, and the same weights, moments and metrics as without "
        f"({time.monotonic() - started:.0f} s)",
        flush=True,
    )


def wait_for_a_step(out: Path, process: subprocess.Popen) -> None:
    """Wait until a line is added to the metrics."""
    metrics = out / "metrics.jsonl"
    before = lines(metrics)
    while process.poll() is None and lines(metrics)[-1:] in (before[-1:], []):
        time.sleep(0.005)


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def workers_of(parent: int) -> list[int]:
    """Return the processes that torchrun started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def contents(out: Path) -> tuple[str, list[dict]]:
    """Return a hash of the final weights and moments, and the metrics without times."""
    path = list_checkpoints(out / "checkpoints")[0]
    data = (path / MODEL).read_bytes() + (path / STATE).read_bytes()
    clock = ("tokens_per_s", "seconds")
    metrics = [json.loads(line) for line in lines(out / "metrics.jsonl")]
    metrics = [{k: v for k, v in line.items() if k not in clock} for line in metrics]
    return path.name + hashlib.sha256(data).hexdigest(), metrics


def damage(checkpoints: Path, n: int, rng: random.Random) -> None:
    """Damage the newest checkpoint at random; it must be noticed, and the previous one used."""
    newest, previous = list_checkpoints(checkpoints)[:2]
    kinds = {"flipped bit": flip, "truncation": truncate, "zeroed page": zero}
    counts = dict.fromkeys(kinds, 0)
    for i in range(n):
        kind = list(kinds)[i % len(kinds)]
        path = rng.choice(sorted(newest.iterdir()))
        sound = path.read_bytes()
        path.write_bytes(kinds[kind](sound, rng))
        found, problems = first_sound(list_checkpoints(checkpoints), checkpoints)
        assert found.path == previous and len(problems) == 1, f"{kind} in {path} was not found"
        counts[kind] += 1
        path.write_bytes(sound)
    assert first_sound(list_checkpoints(checkpoints), checkpoints)[0].path == newest
    print(f"{n} damaged checkpoints: {counts}; all found, the one before used", flush=True)


def damage_records(run: Path, n: int, rng: random.Random) -> None:
    """Damage the run's settings or the shards' manifest at random; it must be noticed."""
    [manifest] = (run.parent / "shards").glob("*/manifest.json")
    readers = {
        run / "config.json": lambda: Run.load(run),
        manifest: lambda: load_shards(manifest.parent),
    }
    for i in range(n):
        path = list(readers)[i % 2]
        sound = path.read_bytes()
        path.write_bytes((flip, truncate)[i % 4 // 2](sound, rng))
        try:
            readers[path]()
        except UserError:
            path.write_bytes(sound)
        else:
            raise AssertionError(f"damage in {path} was not found")
    for read in readers.values():
        read()
    print(f"{n} damaged settings and manifests of shards: all found", flush=True)


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def zero(data: bytes, rng: random.Random, page: int = 4096) -> bytes:
    pages = [at for at in range(0, len(data), page) if any(data[at : at + page])]
    at = rng.choice(pages)
    return data[:at] + bytes(len(data[at : at + page])) + data[at + page :]


def fill_disk(folder: Path) -> None:
    """Train until the disk is full, free space, and resume; the disk is a mount of its own."""
    disk, steps = folder / "disk", 100  # as many as it takes until the disk is full
    disk.mkdir()
    shutil.copytree(folder / "shards", folder / "kept")  # on the large disk
    words = " ".join(f"'{w}'" for w in command(disk / "run", steps))
    words += f" --shards '{folder / 'kept'}'"
    script = f"""
        mount -t tmpfs -o size={DISK} none '{disk}' && cd '{ROOT}'
        {words} --set=steps={steps} > '{folder}/first' 2>&1 & pid=$!
        until ls '{disk}'/run/checkpoints/step-3/manifest.json 2> /dev/null || ! kill -0 $pid; do
            sleep 0.01
        done
        head -c 99m /dev/zero > '{disk}/filler' 2> /dev/null
        wait $pid; echo "exit code $?" >> '{folder}/first'
        '{sys.executable}' -m training doctor '{disk}/run' > '{folder}/doctor' 2>&1
        rm '{disk}/filler'
        {words} > '{folder}/second' 2>&1; echo "exit code $?" >> '{folder}/second'
    """
    subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script])
    first, doctor, second = ((folder / n).read_text() for n in ("first", "doctor", "second"))
    assert "exit code 2" in first and "Traceback" not in first, first
    message = [line for line in first.splitlines() if line.startswith("error:")][-1]
    assert "No space left" in message, first
    assert "can be resumed" in doctor and "DAMAGED" not in doctor, doctor
    assert "exit code 0" in second and "resuming from" in second, second
    print(f"full disk: {message!r}; the checkpoint before was whole, with room it went on")


if __name__ == "__main__":
    main()
