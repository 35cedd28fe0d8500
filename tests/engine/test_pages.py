"""Large pages: the weights of a model that is opened on Linux lie in them."""

import re
from pathlib import Path

import pytest

from gptcore.bundle import load_bundle
from gptcore.model import open_model
from gptcore.system.pages import LARGE, in_large_pages

ROOT = Path(__file__).resolve().parents[2]
THP = Path("/sys/kernel/mm/transparent_hugepage")
BUDDIES = Path("/proc/buddyinfo")  # how many pieces of each size are free, from 4 KB to 4 MB
N_BYTES = 16 * LARGE

pytestmark = pytest.mark.skipif(not THP.is_dir(), reason="no large pages in this kernel")


def n_large() -> int:
    """The bytes of this process that lie in large pages."""
    rolled = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    found = re.search(r"AnonHugePages: +(\d+) kB", rolled)
    assert found
    return 1024 * int(found[1])


def n_free() -> int:
    """The free bytes in pieces of 2 MB and more: without them Linux may refuse."""
    pieces = [line.split()[4:] for line in BUDDIES.read_text(encoding="utf-8").splitlines()]
    return sum(LARGE * int(n) * (1, 2)[i] for row in pieces for i, n in enumerate(row[9:11]))


def test_new_memory_lies_in_large_pages_and_keeps_what_is_in_it() -> None:
    before, free = n_large(), n_free()
    with in_large_pages():
        written = bytearray(range(256)) * (N_BYTES // 256)
    assert n_large() - before >= N_BYTES - 2 * LARGE or free < 4 * N_BYTES
    assert written == bytes(range(256)) * (N_BYTES // 256)


def test_memory_that_was_there_stays_as_it_is() -> None:
    there = bytearray(b"1") * N_BYTES
    before = n_large()
    with in_large_pages():
        pass
    assert n_large() - before < N_BYTES / 4 and len(there) == N_BYTES


def test_so_do_the_weights_of_a_model_that_is_opened() -> None:
    before, free = n_large(), n_free()
    model = open_model(load_bundle(ROOT / "models" / "default"), "cpu", 1, "q8")
    weights = model.bundle.variants["q8"].stat().st_size
    assert n_large() - before > weights / 2 or free < 4 * N_BYTES
