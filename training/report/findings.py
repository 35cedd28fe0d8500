"""What the curves of a run mean, in words, and what to try next.

>>> findings(History(Run.load("runs/mine")))                         # doctest: +SKIP
[Finding(text='The loss of unseen text was lowest at step 1,200 ...', remedy='more text')]
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gptcore.config import Seq2SeqConfig
from gptcore.system.wording import counted, duration, two_digits
from training.report.history import History
from training.run.directory import Run

RISE = 1.01  # of the held-out loss over its minimum; less is chance
FALL = 0.98  # of the held-out loss in the last quarter of the steps; more is the end of learning
LEAST_NATS = 0.01  # and by how much it rises or falls: near 0 a loss may halve by chance
GAP = 0.75  # of the loss of the training text over the held-out loss: soon learned by heart
SPIKE = 1.25  # of the smoothed training loss over its earlier minimum
SPIKE_NATS = 0.2  # and by how much it rises at least: near 0 a loss wobbles by half and more
LEARNED = 0.97  # of the last over the first training loss
OFF = 1.2  # of what the plan expected; it says that it may be off by so much
FEWER = 0.8  # of the planned steps
SPARE = 0.5  # of the minutes that were asked for; reading the text takes some of them
KNOWN = 0.95  # of the replies of a few conversations, word for word
LATE = 1.1  # of the minutes that were asked for
SMOOTHED = 5  # logged losses in a median
BITS = "bits_per_byte"
OR_INIT = ", or a start that knows more: --init models/default"
LITTLE_BYTES = 500_000  # of a text, for a new model to learn a language from
LITTLE_PLAIN = (  # docs/log.md has what models wrote that had read a book, and a part of it
    "{:,} bytes are little for a plain text: a small model learns its words and not its sense"
)
READ_MORE = "a start that has read far more"
FETCH = {  # what gives it, for texts that may be English and for others
    True: "python -m export fetch smollm2-135m, then train with --init models/smollm2-135m "
    "--lora 16",
    False: "python -m export fetch --list names some, Qwen2.5 for many languages; then train with "
    "--init models/NAME --lora 16",
}
ENGLISH = {"and", "it", "of", "the", "that", "this", "to", "you"}  # frequent words
ENGLISH_SHARE, FEW_WORDS = 0.03, 30  # their share of a text's words; and how many it takes to tell


class Finding(NamedTuple):
    """A fact about a run, and what to try next, if there is something."""

    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text}\n  try {self.remedy}" if self.remedy else self.text


def findings(history: History) -> list[Finding]:
    """Return what the curves say, the most important first; nothing of a run just begun."""
    learning = [*unlearned(history)] or [*spikes(history)]
    of_size = [*little(history)]
    if history.run.data.few_held_out:
        few = [*by_words(history), uncertain(history)] if history.is_at_end else []
        return [*learning, *hurried(history), *late(history), *few, *of_size]
    at_end = [*unfinished(history), *unexpected(history)] if history.is_at_end else []
    return [*learning, *by_heart(history), *at_end, *late(history), *of_size]


def unlearned(history: History) -> Iterator[Finding]:
    """Nothing was learned at all."""
    judge = "train_loss" if history.run.data.few_held_out else "val_loss"
    (_, losses), (_, measured) = history.column("loss"), history.column(judge)
    if len(measured) > 1 and measured[-1] < measured[0] - LEAST_NATS:
        return  # as with trained weights, whose loss begins near its end
    if len(measured) < 2 and history.run.options.get("init"):
        return  # nobody knows
    if len(losses) >= 2 * SMOOTHED and np.median(losses[-SMOOTHED:]) > LEARNED * losses[0]:
        yield Finding(
            f"The loss is still {losses[-1] / losses[0]:.0%} of what it was at the first step: "
            f"nothing was learned.",
            f"a lower learning rate: {rate(history, 0.1)}",
        )


def spikes(history: History) -> Iterator[Finding]:
    """The training loss rose by much and did not stay down."""
    steps, losses = history.column("loss")
    if len(losses) < 2 * SMOOTHED:
        return
    windows = np.lib.stride_tricks.sliding_window_view(losses, SMOOTHED)
    smooth = np.median(windows, axis=1)
    lowest = np.minimum.accumulate(smooth)
    over = np.where(smooth - lowest > SPIKE_NATS, smooth / np.maximum(lowest, 1e-9), 1.0)
    if over.max() > SPIKE:
        step = steps[over.argmax() + SMOOTHED // 2]
        yield Finding(
            f"The training loss rose by {over.max() - 1:.0%} around step {step:,}: the learning "
            f"rate is too high for this model.",
            f"a lower one: {rate(history, 1 / 3)}",
        )


def by_heart(history: History) -> Iterator[Finding]:
    """The model learns the training text by heart (over-fitting)."""
    steps, losses = history.column("val_loss")
    _, of_text = history.column("train_loss")
    if len(losses) < 2:
        return
    best, bits = losses.argmin(), history.bits_per_nat
    if losses[-1] > max(RISE * losses[best], losses[best] + LEAST_NATS):
        last = "at the end" if history.is_at_end else "now"
        yield Finding(
            f"The loss of unseen text was lowest at step {steps[best]:,} "
            f"({bits * losses[best]:.2f} bits per byte, {bits * losses[-1]:.2f} {last}): the model "
            f"learns the training text by heart.",
            f"more text{or_init(history)}",
        )
    elif len(of_text) and of_text[-1] < min(GAP * losses[-1], losses[-1] - LEAST_NATS):
        yield Finding(
            f"The training text takes {bits * of_text[-1]:.2f} bits per byte, unseen text "
            f"{bits * losses[-1]:.2f}: the model begins to learn the training text by heart.",
            f"more text, which helps more than more steps or a larger model{or_init(history)}",
        )


def unfinished(history: History) -> Iterator[Finding]:
    """The held-out loss was still falling when the training ended."""
    steps, losses = history.column("val_loss")
    if len(losses) < 3 or losses.argmin() < len(losses) - 1 or [*by_heart(history)]:
        return
    before = losses[np.searchsorted(steps, 0.75 * steps[-1], side="right") - 1]
    if losses[-1] < min(FALL * before, before - LEAST_NATS):
        bits = history.bits_per_nat
        longer = f"a longer training: {length(history, 2 * int(steps[-1]))}"
        yield Finding(
            f"The loss of unseen text was still falling at the end, from {bits * before:.2f} to "
            f"{bits * losses[-1]:.2f} bits per byte in the last quarter.",
            f"more text{or_init(history)}" if ended_early(history) else longer,
        )


def unexpected(history: History) -> Iterator[Finding]:
    """The plan expected fewer bits per byte of the weights that the export takes."""
    expected, (_, reached) = history.run.data.expected_bits_per_byte, history.column(BITS)
    if not (expected and len(reached) and reached.min() > OFF * expected):
        return
    said = f"The plan expected {expected:.2f} bits per byte, the run reached {reached.min():.2f}"
    if found := [*hurried(history)]:
        yield Finding(f"{said}. {found[0].text}", found[0].remedy)
    else:
        yield Finding(f"{said}: docs/scaling.md has the errors of its rule.")


def hurried(history: History) -> Iterator[Finding]:
    """Time was short, the machine became slower, or the text took long to read."""
    data, taken = history.run.data, history.run.train.steps
    wanted, what = data.planned_steps or 0, "planned steps"
    if data.needed_steps:
        if history.reached.get("recall", 0) >= KNOWN:
            return
        wanted, what = data.needed_steps, "steps that these conversations need"
    if history.is_at_end and taken < FEWER * wanted:
        yield Finding(
            f"There was time for {taken:,} of the {wanted:,} {what}.",
            f"a longer training: {length(history, wanted)}",
        )


def late(history: History) -> Iterator[Finding]:
    """The training took longer than was asked for."""
    asked, took = float(history.run.options.get("minutes", 0)), history.summary.get("seconds", 0)
    if asked and took > LATE * 60 * asked:
        yield Finding(
            f"The training took {duration(took)}, not --minutes {asked:g}: the machine became "
            f"slower after it was measured."
        )


def little(history: History) -> Iterator[Finding]:
    """It is a plain text too short to learn a language from; a model made elsewhere knows one."""
    run = history.run
    if history.is_at_end and is_little(run):
        fetch = FETCH[writes_english(run)]
        yield Finding(f"{LITTLE_PLAIN.format(run.data.n_bytes)}.", f"{READ_MORE}: {fetch}")


def is_little(run: Run) -> bool:
    is_plain = not run.data.chat and not isinstance(run.model, Seq2SeqConfig)
    knows = run.base and run.base.imported
    return is_plain and not knows and run.data.n_bytes < LITTLE_BYTES


def uncertain(history: History) -> Finding:
    """The held-out text is so short that its loss says little."""
    n = history.run.data.held_out_tokens or 0
    to_try, more = trial(history.run)
    return Finding(
        f"Only {counted(n, 'token')} could be set aside as unseen text: too "
        f"few to measure how well the model knows new text. So no such figure is shown, and the "
        f"weights of the last step are taken. {to_try}.",
        f"{more}{or_init(history)}",
    )


def by_words(history: History) -> Iterator[Finding]:
    """How many of a few conversations are known by heart, as the answers of a table should be."""
    if (share := history.reached.get("recall")) is None:
        return
    data, steps = history.run.data, history.run.train.steps
    is_short = share < KNOWN and not [*hurried(history)]
    longer = length(history, max(2 * steps, data.needed_steps or 0))
    yield Finding(
        f"Asked in the words of the training text, the model gives {share:.0%} of its replies word "
        f"for word at temperature 0, and fewer at a higher one.",
        f"a longer training, if all should be: {longer}" if is_short else "",
    )


def trial(run: Run) -> tuple[str, str]:
    """Return how a person finds out what a model learned, and what it needs where it fails."""
    if isinstance(run.model, Seq2SeqConfig):
        return "Have it translate sentences that it should know", "more pairs of sentences"
    if not run.data.chat:
        return "Let it go on with a beginning that it should know", "more text"
    if run.options.get("me"):  # chats of people
        return "Write to it what people wrote in the chats", "more of these chats"
    more = "more conversations about what it fails at, asked in several ways"
    return "Ask it what it should know", more


def or_init(history: History) -> str:
    """Return the advice to begin with the model that ships, if it suits a run without a start."""
    run = history.run
    knows = run.options.get("init") or run.data.stages or isinstance(run.model, Seq2SeqConfig)
    is_fit = suits_init(run.data.chat, run.data.n_bytes, writes_english(run))
    return OR_INIT if is_fit and not knows else ""


def writes_english(run: Run) -> bool:
    """Return whether what a run was asked and wrote may be English."""
    written = (text for _, samples in run.samples() for sample in samples for text in sample)
    return may_be_english(" ".join([*run.data.examples, *written]))


def suits_init(is_chat: bool, n_bytes: int, is_english: bool) -> bool:
    """Return whether the model that ships learns a text better than a new one does: a few
    conversations in its language."""
    return is_chat and n_bytes < LITTLE_BYTES and is_english


def may_be_english(text: str) -> bool:
    """Return whether a text may be English: it is, or it is too short to tell."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    n_english = sum(word in ENGLISH for word in words)
    return len(words) < FEW_WORDS or n_english >= ENGLISH_SHARE * len(words)


def ended_early(history: History) -> bool:
    """Return whether the time that was asked for is left: the plan had no use for it."""
    asked, took = float(history.run.options.get("minutes", 0)), history.summary.get("seconds", 0)
    return 0 < took < SPARE * 60 * asked


def rate(history: History, factor: float) -> str:
    return f"--set learning_rate={history.run.train.learning_rate * factor:.1g}"


def length(history: History, steps: int) -> str:
    """Return the option that makes the training so long: minutes, if these were chosen."""
    if minutes := history.run.options.get("minutes"):
        return f"--minutes {two_digits(float(minutes) * steps / history.run.train.steps)}"
    return f"--set steps={steps}"
