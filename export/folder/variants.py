"""Writes a model's smaller files, compares their quality with fp32, and deletes bad ones.

    >>> rows = compared_rows(Run.load("runs/mine"), 12_600_000)               # doctest: +SKIP
    >>> add_variants(folder, ["int8"], rows, tokenizer, force=False)     # doctest: +SKIP
    {'fp32': {'file': 'onnx/model.onnx', ...}, 'int8': {...}}

Each file is measured on the held-out split, or on the training text if few tokens are held out; of
a large model on a part of it, with one forward pass per row.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile

import numpy as np
import onnx
import onnxruntime as ort

from export.formats.feeds import prompt_feeds
from export.formats.graph import part_of
from export.quantize.save import save_quantized
from gptcore.bundle import VARIANTS, data_file, graph_bytes
from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.engine.onnx_session import open_inference
from gptcore.engine.sampling import log_softmax
from gptcore.facts import Variant
from gptcore.system.cores import fastest, median_seconds, n_cores, thread_counts
from gptcore.text.tokenizer import Tokenizer
from training.data.rows import IGNORED, Rows
from training.data.shards.folder import CACHE, open_shards
from training.evaluation.bits_per_byte import Total
from training.machine.progress import progress, waiting
from training.run.directory import Run

# Largest accepted relative increase of bits per byte.
WORST = {"fp16": 0.005, "int8": 0.04, "q8": 0.005, "q4": 0.04, "q4f16": 0.04}
SLIGHT = 0.001  # bits per byte that are no loss, whatever share of a narrow text's they are
HALF = float(np.finfo(np.float16).max)
N_CALIBRATION = 24  # rows
FLOPS = 5e12  # of measuring one file, a minute on two cores; 10M parameters read 250,000 tokens
LEAST_ROW, MOST_LOGITS = 512, 1 << 24
TIMED = 128  # tokens, by which the number of threads is chosen
N_LARGEST = 8  # rows in whose first TIMED tokens fp16 must not overflow
TIMED_BYTES = 1e9  # of a larger file no second session is opened beside the first
REFERENCE_BYTES = 2**27  # of the first file's log probabilities; more of them are on the disk
TOGETHER = 64  # tokens whose probabilities are in memory in double precision, 78 MB of 151,936
Row = tuple[np.ndarray, np.ndarray]  # ids (T,) and targets (T,); an IGNORED target is not counted
FittingTexts = Callable[[Path], Iterable[np.ndarray]]  # of the portable graph in fp32: ids (T,)


@dataclass
class Measured:
    """Sums over the predictions on the text."""

    total: Total = field(default_factory=Total)
    n_agree: int = 0  # predictions whose likeliest token equals fp32's
    divergence: float = 0.0  # sum of KL(fp32 || this), nats

    def add(self, log_p: np.ndarray, reference: np.ndarray, ids: np.ndarray, n_bytes: int) -> None:
        """Add n predictions.

        log_p, reference: (n, V) log probabilities of this file and of fp32; ids: (n,) the true next
        tokens.
        """
        nats = -float(np.take_along_axis(log_p, ids[:, None], 1).sum())
        self.total += Total(n_tokens=len(ids), n_bytes=n_bytes, nats=nats)
        self.n_agree += int((log_p.argmax(-1) == reference.argmax(-1)).sum())
        self.divergence += float((np.exp(reference) * (reference - log_p)).sum())

    def facts(self, file: Path, name: str) -> Variant:
        """Return the averages, for gptcore.json and the model card."""
        n_tokens = max(self.total.n_tokens, 1)
        return Variant(
            file=name,
            bytes=graph_bytes(file),
            bits_per_byte=self.total.bits_per_byte,
            agreement=self.n_agree / n_tokens,
            divergence=self.divergence / n_tokens,
        )


def calibration_rows(run: Run) -> list[np.ndarray]:
    """Return the ids (T,) of some rows of a run's training text."""
    rows = split_rows(run, "train")
    at = np.linspace(0, len(rows) - 1, N_CALIBRATION).astype(int)
    return [rows.batch([i], True)[0].numpy()[0] for i in sorted(set(at.tolist()))]


def compared_rows(run: Run, n_parameters: int) -> Iterable[Row]:
    """Return the rows of a run's text to measure files on: as many as one reads within FLOPS.

    Raises UserError if its shards are gone.
    """
    rows = split_rows(run, "train" if run.data.few_held_out else "val")
    chosen = rows.sample(int(FLOPS / (2 * n_parameters)))
    return [tuple(part.numpy()[0] for part in rows.batch([i], True)) for i in chosen]


def split_rows(run: Run, split: str) -> Rows:
    assert run.data.shards is not None
    try:
        shards = open_shards(run.data.shards, run.path / CACHE)
    except UserError as error:
        raise UserError(
            f"smaller files are measured on the run's text: {error}; "
            f"train on that text again, or leave out --quantize"
        ) from None
    return Rows(shards, split, row_tokens(run.model))


def row_tokens(config: ModelConfig) -> int:
    """Return the tokens of a row: the context, unless its logits would be too many for memory."""
    return min(config.block_size, max(LEAST_ROW, MOST_LOGITS // config.vocab_size))


def text_rows(texts: Iterable[list[int]], block_size: int) -> Iterator[Row]:
    """Yield the rows of plain texts, given as ids; every token is counted."""
    for ids in texts:
        for at in range(0, len(ids) - 1, block_size):
            part = np.array(ids[at : at + block_size + 1], np.int64)
            yield part[:-1], part[1:]


def add_variants(
    folder: Path,
    names: Sequence[str],
    rows: Iterable[Row],
    tokenizer: Tokenizer,
    force: bool,
    fitting_texts: FittingTexts = lambda graph: (),
) -> dict[str, Variant]:
    """Write the files into the folder and measure them; return the facts of those that are kept.

    `fitting_texts` returns the rows of ids, of other text, that 4 bits are fitted to.
    A file whose bits per byte are worse than fp32's by more than WORST is deleted, unless `force`
    is set; so is one in fp16 of a model that computes values which fp16 does not hold.
    """
    rows = list(rows)
    texts = list(fitting_texts(folder / VARIANTS["fp32"])) if {"q4", "q4f16"} & {*names} else []
    for name in sorted(names):
        source, form = VARIANTS["fp32"], name
        if name == "q4f16" and "q4" in names:  # has the same integers, which are fitted once
            source, form = VARIANTS["q4"], "fp16"
        save_quantized(folder / source, folder / VARIANTS[name], form, texts)
    files = {name: folder / VARIANTS[name] for name in ("fp32", *names)}
    measured = measure(files, rows, tokenizer.byte_lengths)
    facts = {name: measured[name].facts(files[name], VARIANTS[name]) for name in files}
    print_table(facts)
    in_half = {"fp16", "q4f16"} & {*names}
    most = largest(files["fp32"], rows) if in_half else 0.0
    for name in names:
        best, fault = facts["fp32"].bits_per_byte, ""
        limit = max((1 + WORST[name]) * best, best + SLIGHT)
        if not (facts[name].bits_per_byte <= limit):
            fault = f"is over {100 * WORST[name]:g}% worse"
        elif name in in_half and not (most <= HALF):
            fault = f"holds no more than {HALF:,.0f}, and the model computes {most:,.0f}"
        if fault and not force:
            files[name].unlink()
            data_file(files[name]).unlink(missing_ok=True)
            del facts[name]
            print(f"{name} {fault}: {VARIANTS[name]} is left out (--force)")
    return facts


def measure(
    files: dict[str, Path], rows: Iterable[Row], byte_lengths: np.ndarray
) -> dict[str, Measured]:
    """Measure every file on the same rows; the first file is the reference.

    Small files are open together and read a row in turn. If one has TIMED_BYTES or more, each is
    opened once, and closed before the next; the reference's log probabilities wait on the disk.
    Raises UserError if the rows contain no token.
    """
    rows = [(ids, targets) for ids, targets in rows if (targets != IGNORED).any()]
    if not rows:
        raise UserError("the text is empty: there is nothing to measure variants on")
    first = next(iter(files.values()))
    in_turn = len(files) > 1 and max(map(graph_bytes, files.values())) >= TIMED_BYTES
    result = {name: Measured() for name in files}
    sessions: dict[str, ort.InferenceSession] = {}
    with (
        progress(None, "measuring", len(rows) * len(files), " rows") as bar,
        SpooledTemporaryFile(REFERENCE_BYTES, dir=str(first.parent)) as references,
    ):
        for part in [rows] if in_turn else [[row] for row in rows]:
            for name, path in files.items():
                session = sessions.get(name) or quickest(path, rows[0][0][:TIMED])
                if not in_turn:
                    sessions[name] = session
                references.seek(0)
                for row in part:
                    for log_p, ids in predictions(session, *row):
                        reference = log_p
                        if path != first:
                            kept = np.frombuffer(references.read(4 * log_p.size), np.float32)
                            reference = kept.reshape(log_p.shape)
                        elif len(files) > 1:
                            references.write(log_p.astype(np.float32).tobytes())
                        result[name].add(log_p, reference, ids, int(byte_lengths[ids].sum()))
                    bar.update()
                del session
    return result


def predictions(
    session: ort.InferenceSession, ids: np.ndarray, targets: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield log probabilities (n, V) and the true next tokens (n,) of a row, TOGETHER at a time."""
    (counted,) = np.nonzero(targets != IGNORED)
    logits = session.run(["logits"], prompt_feeds(session, ids))[0]
    for start in range(0, len(counted), TOGETHER):
        at = counted[start : start + TOGETHER]
        yield log_softmax(logits[0, at]), targets[at]


def largest(path: Path, rows: Sequence[Row]) -> float:
    """Return the largest absolute value that an fp32 graph computes of some rows, but for norms.

    `measure` would not notice that fp16 has it not: a CPU computes in 32 bits.
    """
    nodes = onnx.load(path, load_external_data=False).graph.node
    names = {node.input[0] for node in nodes if node.op_type in ("MatMul", "Pow")}
    names |= {node.output[0] for node in nodes if node.op_type == "MatMul"}
    session = open_inference(path, threads=n_cores(), content=part_of(path, names))
    most = 0.0
    for ids, _ in rows[:N_LARGEST]:
        found = session.run(None, prompt_feeds(session, ids[:TIMED]))
        most = max(most, *(float(np.abs(value).max()) for value in found))
    return most


def quickest(path: Path, ids: np.ndarray) -> ort.InferenceSession:
    """Open a session with the number of threads that computes this row in the least time."""

    def seconds(threads: int) -> float:
        session = open_inference(path, "cpu", threads)
        feeds = prompt_feeds(session, ids)
        return median_seconds(lambda: session.run(["logits"], feeds), most=8)

    counts = thread_counts() if graph_bytes(path) < TIMED_BYTES else [n_cores()]
    with waiting(f"opening {path.name}"):
        return open_inference(path, "cpu", fastest(counts, seconds))


def print_table(facts: dict[str, Variant]) -> None:
    print(f"{'format':8}{'file':30}{'MB':>8}{'bits/byte':>11}{'agreement':>11}{'KL':>10}")
    for name, fact in facts.items():
        print(
            f"{name:8}{fact.file:30}{fact.bytes / 1e6:8.2f}{fact.bits_per_byte:11.4f}"
            f"{fact.agreement:11.2%}{fact.divergence:10.2g}"
        )
