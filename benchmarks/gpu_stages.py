"""The stages of benchmarks/gpu.py, which runs each in its own process.

    python -m benchmarks.gpu_stages machine '{"device": "cuda", "work": "runs/gpu", ...}'

A stage prints its rows as JSON in its last line: [[quantity, value], ...].
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from gptcore.bundle import read_facts
from gptcore.engine.generate import Session
from gptcore.system.files import list_checkpoints
from training.dialogues.generator import dialogues
from training.run.directory import Run

Rows = list[tuple[str, str]]
PACKAGES = ("onnxruntime-gpu", "onnxruntime", "onnxruntime-genai-cuda", "onnxruntime-genai")
PACKAGES += ("transformers", "tokenizers", "onnx", "onnxscript")
PROMPTS = ([3], [5, 8, 13], list(range(20, 40)))
GREEDY_TOKENS = 100
SUITE = (
    '[greeting]\nwant = "."\nconversations = [{ user = ["Hello!"] }, { user = ["Who are you?"] }]\n'
)


def machine(given: SimpleNamespace) -> Rows:
    rows = [("Python, PyTorch", f"{platform.python_version()}, {torch.__version__}")]
    if given.device == "cuda":
        name, memory = torch.cuda.get_device_name(), torch.cuda.mem_get_info()[1] / 2**30
        rows += [("GPU", f"{name}, {memory:.0f} GiB"), ("CUDA", str(torch.version.cuda))]
    for package in PACKAGES:
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:
            rows.append((package, "not installed"))
    return rows


def train(given: SimpleNamespace) -> Rows:
    return trained(given, "run")


def eager(given: SimpleNamespace) -> Rows:
    return trained(given, "eager", compile="off", steps=max(8, given.steps // 4))


def mfu(given: SimpleNamespace) -> Rows:
    """Train a larger model for a few steps, to measure its MFU."""
    steps, rows = (40, 64) if given.device == "cuda" else (4, 2)
    sizes = {"steps": steps, "batch_size": rows, "micro_batch_size": rows}
    return trained(given, "large", preset=given.large, **sizes)


def trained(given: SimpleNamespace, name: str, **changed: object) -> Rows:
    """Train a new run and return its rows, with the speed."""
    out = given.work / name
    shutil.rmtree(out, ignore_errors=True)
    started = time.perf_counter()
    execute(*training(given, out, **changed))
    wall = time.perf_counter() - started
    run = Run.load(out)
    lines = [line for line in run.metrics() if "loss" in line]
    steady = lines[len(lines) // 2 :]  # the first steps compile

    def usual(key: str) -> float:
        return statistics.median(line[key] for line in steady)

    [*_, measured] = run.evaluations().values()
    rows = [
        ("model", f"{run.summary()['parameters']:,} parameters, batch {run.train.batch_size}"),
        ("precision, compile", f"{run.train.dtype}, {run.train.compile}"),
        ("tokens/s", f"{usual('tokens_per_s'):,.0f}"),
        ("MFU", f"{usual('mfu'):.1%}" if "mfu" in lines[-1] else "known for GPUs alone"),
        ("loss", f"{lines[0]['loss']:.3f} to {lines[-1]['loss']:.3f} in {run.train.steps} steps"),
        ("held-out bits per byte", f"{measured['bits_per_byte']:.4f}"),
        ("wall time, with tokenising", f"{wall:.0f} s"),
    ]
    if "peak_memory" in lines[-1]:
        rows.append(("peak memory", f"{lines[-1]['peak_memory'] / 2**30:.2f} GiB"))
    return rows


def training(given: SimpleNamespace, out: Path, **changed: object) -> list[object]:
    """Return the command that trains."""
    compiling = "on" if given.device == "cuda" else "off"  # compiling takes minutes on busy cores
    settings = {"steps": given.steps, "dtype": "bfloat16", "compile": compiling} | changed
    preset = settings.pop("preset", given.preset)
    steps = settings["steps"]
    every = {"log_every": max(1, steps // 40), "save_every": max(1, steps // 4)}
    settings |= every | {"eval_every": max(1, steps // 2)}
    words = [f"--set={key}={value}" for key, value in settings.items()]
    shards = given.work / f"shards-{preset}"
    python = [sys.executable, "-m", "training", *given.text]
    return [*python, "--preset", preset, "--out", out, "--shards", shards, *words]


def evaluate(given: SimpleNamespace) -> Rows:
    suite, data, out = (given.work / n for n in ("suite.toml", "dialogues.jsonl", "evaluated.json"))
    suite.write_text(SUITE, encoding="utf-8")
    lines = [json.dumps({"messages": messages}) for messages in islice(dialogues(99), 50)]
    data.write_text("\n".join(lines), encoding="utf-8")
    options = ["--data", data, "--suite", suite, "--seeds", 1, "--out", out]
    execute(sys.executable, "-m", "training", "evaluate", given.work / "run", *options)
    report = json.loads(out.read_text(encoding="utf-8"))
    rows = [
        ("bits per byte of 50 dialogues", f"{report['bits_per_byte']['all']['bits_per_byte']:.4f}")
    ]
    if "skills" in report:
        rows.append(("conversations held", str(2 * report["skills"]["all"]["n"])))
    return [*rows, ("measuring took", f"{report['seconds']} s")]


def resume(given: SimpleNamespace) -> Rows:
    """Kill a run after a checkpoint, resume it, and compare it with an uninterrupted run."""
    out = given.work / "killed"
    shutil.rmtree(out, ignore_errors=True)
    words = [*map(str, training(given, out))]
    process = subprocess.Popen(words)
    while process.poll() is None and not list_checkpoints(out / "checkpoints"):
        time.sleep(0.005)
    time.sleep(0.1)  # into the next steps
    process.kill()
    if process.wait() == 0:
        raise SystemExit("the run ended before it could be killed: give more --steps")
    found = Run.load(out).newest_checkpoint().facts["step"]
    execute(*words, "--resume")
    rows = [("killed after the checkpoint of", f"step {found} of {given.steps}")]
    rows += [("weights at the end", likeness(given.work / "run", out))]
    if "equal" not in rows[-1][1]:  # some kernels of GPUs add in a different order every time
        again = given.work / "again"
        shutil.rmtree(again, ignore_errors=True)
        execute(*training(given, again))
        rows += [("the same run twice, not killed", likeness(given.work / "run", again))]
    return rows


def likeness(one: Path, other: Path) -> str:
    ours, theirs = (Run.load(run).newest_checkpoint().model for run in (one, other))
    if all(torch.equal(ours[name], theirs[name]) for name in ours):
        return "equal, bit for bit"
    worst = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
    largest = max(float(tensor.abs().max()) for tensor in ours.values())
    return f"differ by up to {worst:.2g}; the largest weight is {largest:.2g}"


def fsdp(given: SimpleNamespace) -> Rows:
    """Compare the losses of FSDP with one process with those of the plain model."""
    few = {"steps": 8, "compile": "off", "dtype": "float32"}
    losses = []
    for name, launcher in (("whole", []), ("split", ["torch.distributed.run", "--standalone"])):
        out = given.work / name
        shutil.rmtree(out, ignore_errors=True)
        [python, dash, *words] = training(given, out, **few, parallel="fsdp")
        more = [dash, *launcher, "--nproc-per-node=1"] if launcher else []
        execute(python, *more, dash, *words)
        losses.append([line["loss"] for line in Run.load(out).metrics() if "loss" in line])
    worst = max(abs(a - b) for a, b in zip(*losses))
    return [("losses of 8 steps against one process without it", f"differ by up to {worst:.2g}")]


def export(given: SimpleNamespace) -> Rows:
    out = given.work / "model"
    shutil.rmtree(out, ignore_errors=True)
    options = ["--out", out, "--quantize", "fp16", "--force"]
    execute(sys.executable, "-m", "export", given.work / "run", *options)
    parity = read_facts(out).parity
    return [(c.name, f"worst {c.worst:.2g}") for c in parity if c.worst is not None]


def session(given: SimpleNamespace) -> Rows:
    return against_cpu(given, "fp32")


def fp16(given: SimpleNamespace) -> Rows:
    return against_cpu(given, "fp16")


def against_cpu(given: SimpleNamespace, variant: str) -> Rows:
    """Compare the device's greedy tokens and logits with those of fp32 on the CPU."""
    from export.verify.decoder import greedy
    from gptcore.model import load_model

    folder = given.work / "model"
    model = load_model(folder, threads=1, device=given.device, variant=variant)
    reference = load_model(folder, threads=1, device="cpu", variant="fp32")
    n = min(GREEDY_TOKENS, model.config.block_size - 32)
    same = 0
    for prompt in PROMPTS:
        texts = [greedy(m.session(), list(prompt), n) for m in (model, reference)]
        same += sum(a == b for a, b in zip(*texts))
    ours = model.session()
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, 64).tolist()
    difference = np.abs(ours.prefill(ids) - reference.session().prefill(ids)).max()
    cache = getattr(ours.slots.cache, "caches", [[np.zeros(0)]])[0][0]
    place = "numpy" if isinstance(cache, np.ndarray) else cache.device_name()
    return [
        ("provider", model.provider),
        ("where the cache lies", place),
        ("greedy tokens equal to the CPU's fp32", f"{same} of {len(PROMPTS) * n}"),
        ("largest difference of a logit", f"{difference:.2g}"),
    ]


def decode(given: SimpleNamespace) -> Rows:
    """Measure tokens per second after 64 tokens: medians of five rounds, measured in turns."""
    contenders, rows = {}, []
    for name, build in CONTENDERS.items():
        try:
            contenders[name] = build(given)
        except Exception as error:  # a missing package must not stop the others
            rows.append((f"{name} (left out)", f"{type(error).__name__}: {error}"[:150]))
    config = Run.load(given.work / "run").model
    prompt = np.random.default_rng(0).integers(0, config.vocab_size, 64).tolist()
    n = min(128, config.block_size - 72)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(6):
        for name, generate in contenders.items():
            took = generate(prompt, n)
            seconds[name] += [took] if number else []  # the first round warms up
    speeds = {name: n / statistics.median(values) for name, values in seconds.items()}
    ours = speeds.get("gptcore fp32", float("nan"))
    return [(k, f"{v:,.0f} tokens/s, {v / ours:.2f}x") for k, v in speeds.items()] + rows


def timed(session: Session):
    """Return the seconds that a session needs for n greedy tokens after the prompt."""

    def generate(prompt: list[int], n: int) -> float:
        token = int(session.prefill(prompt).argmax())
        started = time.perf_counter()
        for _ in range(n):
            token = int(session.step(token).argmax())
        return time.perf_counter() - started

    return generate


def onnx_contender(variant: str):
    def build(given: SimpleNamespace):
        from gptcore.model import load_model

        folder = given.work / "model"
        return timed(load_model(folder, device=given.device, variant=variant).session())

    return build


def torch_contender(given: SimpleNamespace):
    from gptcore.nn.torch_session import TorchSession
    from training.evaluation.subject import TorchModel

    return timed(TorchSession(TorchModel(Run.load(given.work / "run")).network))


def transformers_contender(given: SimpleNamespace):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(given.work / "model").to(given.device)
    model.generation_config.eos_token_id = None

    def took(prompt: list[int], n: int) -> float:
        ids = torch.tensor([prompt], device=given.device)
        started = time.perf_counter()
        mask = torch.ones_like(ids)
        model.generate(ids, attention_mask=mask, max_new_tokens=n, do_sample=False).tolist()
        return time.perf_counter() - started

    return lambda prompt, n: took(prompt, n + 1) - took(prompt, 1)


def genai_contender(given: SimpleNamespace):
    import onnxruntime_genai as og

    config = og.Config(str(given.work / "model"))
    config.clear_providers()
    if given.device == "cuda":
        config.append_provider("cuda")
    model = og.Model(config)

    def generate(prompt: list[int], n: int) -> float:
        params = og.GeneratorParams(model)
        length = len(prompt) + n + 1
        params.set_search_options(min_length=length, max_length=length, do_sample=False)
        generator = og.Generator(model, params)
        generator.append_tokens(np.array([prompt], np.int32))
        generator.generate_next_token()
        started = time.perf_counter()
        for _ in range(n):
            generator.generate_next_token()
        return time.perf_counter() - started

    return generate


CONTENDERS = {
    "gptcore fp32": onnx_contender("fp32"),
    "gptcore fp16": onnx_contender("fp16"),
    "PyTorch, our session": torch_contender,
    "transformers": transformers_contender,
    "onnxruntime-genai": genai_contender,
}


def execute(*words: object) -> None:
    """Run a command. Raises SystemExit with its last line if it fails."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, errors="replace")
    print(done.stdout, done.stderr, flush=True)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        raise SystemExit(lines[-1])


STAGES = {
    f.__name__: f
    for f in (machine, train, eager, mfu, evaluate, resume, fsdp, export, session, fp16, decode)
}

if __name__ == "__main__":
    given = SimpleNamespace(**json.loads(sys.argv[2]))
    given.work = Path(given.work)
    if given.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU here: --device cpu proves the script")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    print(json.dumps(STAGES[sys.argv[1]](given)))
