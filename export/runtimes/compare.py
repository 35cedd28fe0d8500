"""Checks whether other runtimes load a model folder unchanged and generate the same tokens.

    >>> verify_runtimes(Path("models/nano"), ["onnxruntime", "transformers"])  # doctest: +SKIP

Each runs in a process and an environment of its own (export/runtimes). Runtimes round sums in
different orders, so two tokens with nearly equal logits may change places. Where the tokens of a
runtime differ, the report says how close the two logits are.
"""

import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from export.formats.model_folder import check_not_small
from export.gguf.write import write_gguf
from export.runtimes.environments import PEERS, PeerError, Running, start
from export.verify.decoder import GREEDY_TOKENS
from gptcore.bundle import Bundle, load_bundle
from gptcore.checks import UserError, check_choice
from gptcore.model import load_model
from gptcore.text.chat_template import Message, render, text_opening

NEEDED = ("config.json", "tokenizer.json")  # only models of Llama's shape have these files
CHATS: list[list[Message]] = [
    [{"role": "user", "content": "Tell me a story."}],
    [{"role": "user", "content": "Hi! Can you tell me a story about a cat?"}],
    [
        {"role": "system", "content": "You are a friendly assistant."},
        {"role": "user", "content": "Hi! My name is Ada."},
        {"role": "assistant", "content": "Hello, Ada! What can I do for you?"},
        {"role": "user", "content": "What is my name, and can you tell me a story?"},
    ],
]
TEXTS = ["The", "Once upon a time there was", "In the beginning, before anyone had thought of it,"]
ROUNDS = 3  # number of speed measurements, of which the median counts
LAYOUT = "{:18} {:20} {:>12} {:>12} {:>9}"
HEADER = ("runtime", "version", "equal", "ragged batch", "speed")


class Row(NamedTuple):
    """The result of one runtime: how many of `n` tokens equal ours, and its relative speed."""

    version: str
    n: int  # tokens of all prompts together
    equal: int
    ragged: int | None  # None if the runtime takes one prompt at a time
    speed: float  # tokens/s divided by ours
    differences: list[str]

    @property
    def passed(self) -> bool:
        return self.equal == self.n and self.ragged in (None, self.n)


def verify_runtimes(folder: Path, names: list[str]) -> int:
    """Print a line per runtime; return 0 if each ran and agrees, else 1."""
    for name in names:
        check_choice("runtime", name, PEERS)
    bundle = load_portable(folder)
    prompts = make_prompts(bundle)
    n = min(GREEDY_TOKENS, bundle.config.block_size - max(map(len, prompts)))
    passed = True
    try:
        with tempfile.TemporaryDirectory() as temporary, start("gptcore", folder) as ours:
            expected = [ours.ask([prompt], n)["ids"][0] for prompt in prompts]
            n_words = sum(until_end(ids, bundle) for ids in expected)
            print(f"{len(prompts)} prompts, {n} greedy tokens after each; {n_words} of these")
            print("come before the reply's end. Speed is in decoding, relative to ours, one thread")
            print("each.", LAYOUT.format(*HEADER), sep="\n")
            for name in names:
                try:
                    with start(name, source(name, folder, Path(temporary))) as peer:
                        row = compare(peer, ours, folder, prompts, expected)
                except PeerError as error:
                    print(f"{name:18} missing: {error}", flush=True)
                    passed = False
                    continue
                print_row(name, row)
                passed = passed and row.passed
    except PeerError as error:
        raise UserError(f"{folder} could not be run by gptcore itself: {error}") from None
    return 0 if passed else 1


def load_portable(folder: Path) -> Bundle:
    """Load and verify a folder; raises UserError if other runtimes cannot read it."""
    bundle = load_bundle(folder)
    check_not_small(bundle)
    for name in NEEDED:
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} has no {name}: other runtimes read only models of Llama's shape with a "
                f"tokenizer of their own, such as the preset 'nano'"
            )
    return bundle


def source(name: str, folder: Path, temporary: Path) -> Path:
    """Return what the runtime reads: the folder itself, or a single file for llama.cpp."""
    if name != "llama.cpp":
        return folder
    path = temporary / "model.gguf"
    try:
        write_gguf(folder, path)
    except UserError as error:
        raise PeerError(str(error)) from None
    return path


def make_prompts(bundle: Bundle) -> list[list[int]]:
    """Return three prompts of unequal length: conversations, or beginnings of texts."""
    tokenizer, longest = bundle.tokenizer, bundle.config.block_size // 2
    if bundle.is_chat:
        prompts = [render(messages, tokenizer, prompt=True) for messages in CHATS]
    else:
        prompts = [[*text_opening(tokenizer), *tokenizer.encode(text)] for text in TEXTS]
    return [ids[-longest:] for ids in prompts]


def until_end(ids: list[int], bundle: Bundle) -> int:
    """Return the number of tokens before the first one that would end a reply."""
    ends = set(bundle.tokenizer.special.values())
    return next((i for i, token in enumerate(ids) if token in ends), len(ids))


def compare(
    peer: Running,
    ours: Running,
    folder: Path,
    prompts: list[list[int]],
    expected: list[list[int]],
) -> Row:
    """Compare single prompts with ours, and a batch of prompts with single prompts."""
    n = len(expected[0])
    single = [peer.ask([prompt], n)["ids"][0] for prompt in prompts]
    ragged = None
    if PEERS[peer.facts["runtime"]].batches:
        batch = peer.ask(prompts, n)["ids"]
        ragged = sum(map(count_equal, batch, single))
    differences = [
        describe(folder, prompt, ours_ids, ids)
        for prompt, ours_ids, ids in zip(prompts, expected, single)
        if ids != ours_ids
    ]
    equal = sum(map(count_equal, single, expected))
    speed = relative_speed(peer, ours, prompts[0], n)
    return Row(peer.facts["version"], n * len(prompts), equal, ragged, speed, differences)


def count_equal(a: list[int], b: list[int]) -> int:
    return sum(x == y for x, y in zip(a, b))


def describe(folder: Path, prompt: list[int], expected: list[int], got: list[int]) -> str:
    """Return where the tokens first differ, and how close our two likeliest logits are there."""
    # opened only here: the weights of ours and of the other are in memory already
    session = load_model(folder, threads=1, device="cpu", variant="fp32").session()
    at = next(i for i, (a, b) in enumerate(zip(expected, got)) if a != b)
    second, first = np.sort(session.prefill(prompt + expected[:at]))[-2:]
    return (
        f"prompt {prompt[:4]}... differs from token {at} on, where the logits of our two "
        f"likeliest are {first - second:.2g} apart"
    )


def relative_speed(peer: Running, ours: Running, prompt: list[int], n: int) -> float:
    """Return tokens/s divided by ours: medians of measurements taken in turns."""
    times = [(ours.ask([prompt], n), peer.ask([prompt], n)) for _ in range(ROUNDS)]
    our_seconds, seconds = (statistics.median(r["seconds"] for r in side) for side in zip(*times))
    return our_seconds / seconds


def print_row(name: str, row: Row) -> None:
    ragged = "-" if row.ragged is None else f"{row.ragged}/{row.n}"
    figures = f"{row.equal}/{row.n}", ragged, f"{row.speed:.2f}x"
    print(LAYOUT.format(name, row.version, *figures), flush=True)
    for line in row.differences:
        print(f"  {line}")
