"""Sentence pairs from a .tsv or .tsv.gz file with source, tab, target on each line.

>>> pairs = read_pairs(Path("pairs.tsv.gz"), reverse=False)          # doctest: +SKIP
>>> training, validation = split_pairs(pairs)                        # doctest: +SKIP
"""

from itertools import compress
from pathlib import Path

import numpy as np

from gptcore.checks import UserError
from gptcore.system.wording import counted
from gptcore.text.tokenizer import Tokenizer
from gptcore.translation.search import encode_source, target_ends
from training.data.corpus import document_number
from training.formats.encoding import note
from training.formats.found import Unreadable
from training.formats.lines import numbered_lines, open_text, text_encoding
from training.formats.packed import DAMAGED, every_file
from training.formats.places import local_file

Pair = tuple[str, str]  # source, target
Encoded = tuple[np.ndarray, np.ndarray]  # ids of source and target, uint32
Fitting = tuple[list[Pair], list[Encoded]]  # the pairs that fit a model, and their ids

TRAINING, VALIDATION = "pairs/training.tsv", "pairs/validation.tsv"  # in the run directory
# Held-out pairs: their share, and the most that are split off, or translated to be scored.
VALIDATION_SHARE, MAX_VALIDATION = 0.02, 500


def read_pairs(path: Path, reverse: bool = False) -> list[Pair]:
    """Return source and target of each line; `reverse` swaps them; further columns are ignored.

    Raises UserError if the file cannot be read, holds no pairs, or if a line lacks one side.
    """
    check_pairs_file(path)
    pairs: list[Pair] = []
    try:
        n_files = sum(1 for _ in every_file(local_file(path)))
        if n_files != 1:
            holds = f"it holds {counted(n_files, 'file')}, not one"
            raise Unreadable(f"{holds}: unpack it, and name the one with the pairs")
        for file in every_file(local_file(path)):
            if said := note(text_encoding(file)):
                print(f"{path}: {said}")
            with open_text(file) as stream:
                lines = ((i, line) for i, line in numbered_lines(stream) if line.strip())
                pairs = [parse_pair(line, f"{path}, line {i}") for i, line in lines]
    except Unreadable as error:
        raise UserError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text: convert it") from None
    except DAMAGED as error:
        damage = f"is a damaged archive ({error}): fetch or pack it again"
        raise UserError(f"{path} {damage}") from None
    if not pairs:
        raise UserError(f"{path} holds no pairs: write source, tab, target on each line")
    return [(target, source) for source, target in pairs] if reverse else pairs


def parse_pair(line: str, where: str) -> Pair:
    """Return the first two columns of a line. Raises UserError if there are none, or empty ones."""
    source, target, *_ = [*(column.strip() for column in line.rstrip("\n").split("\t")), ""]
    if "\t" not in line:
        raise UserError(f"{where}: the line has no tab; write source, tab, target")
    if not (source and target):
        raise UserError(f"{where}: one side is empty; drop the line")
    return source, target


def check_pairs_file(path: Path) -> None:
    """Raise UserError if there is no such file."""
    if not path.is_file():
        raise UserError(f"{path} is not a file: name one with source, tab, target on each line")


def write_pairs(pairs: list[Pair], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")


def split_pairs(pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Return training and validation pairs; all pairs of one source are in the same split.

    Raises UserError if all pairs have the same source.
    """
    share = min(VALIDATION_SHARE, MAX_VALIDATION / len(pairs))
    numbers = [document_number(source) for source, _ in pairs]
    limit = max(int(share * 2**64), min(numbers) + 1)  # at least one is held out
    training = [pair for pair, number in zip(pairs, numbers) if number >= limit]
    if not training:
        raise UserError("all pairs have the same source: give pairs with different sources")
    return training, [pair for pair, number in zip(pairs, numbers) if number < limit]


def encode_pairs(
    pairs: list[Pair], source_tokenizer: Tokenizer, tokenizer: Tokenizer, block_size: int, use: str
) -> Fitting:
    """Return the pairs that fit into block_size tokens, and the ids of their sources and targets.

    `use`: their purpose, for the message that says how many do not fit. Raises UserError if none
    fits.
    """
    start, end = target_ends(tokenizer)
    encoded = [
        (
            np.array(encode_source(source, source_tokenizer), np.uint32),
            np.array([start, *tokenizer.encode(target), end], np.uint32),
        )
        for source, target in pairs
    ]
    fits = [max(len(source), len(target) - 1) <= block_size for source, target in encoded]
    if not any(fits):
        raise UserError(
            f"every pair {use} is longer than block_size={block_size}: enlarge it, or give "
            f"shorter ones"
        )
    if n_left_out := fits.count(False):
        print(f"left out {counted(n_left_out, 'pair')} {use} of more than {block_size} tokens")
    return list(compress(pairs, fits)), list(compress(encoded, fits))
