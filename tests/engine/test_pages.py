"""Large pages: the weights of a model that is opened on Linux lie in them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
THP = Path("/sys/kernel/mm/transparent_hugepage")
# In a process of its own, as a test before may have left memory that malloc uses again.
BEGIN = """
import re
from pathlib import Path
from gptcore.bundle import load_bundle
from gptcore.model import open_model
from gptcore.system.pages import in_large_pages

def n_large():
    rolled = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    return 1024 * int(re.search(r"AnonHugePages: +(\\d+) kB", rolled)[1])

def n_free():
    rows = [line.split()[4:] for line in Path("/proc/buddyinfo").read_text().splitlines()]
    return sum(2**21 * int(row[9]) + 2**22 * int(row[10]) for row in rows)

free, before = n_free(), n_large()
"""
WRITTEN = """
with in_large_pages():
    written = bytearray(range(256)) * 2**17
assert written == bytes(range(256)) * 2**17
wanted = 2**25 - 2**22
"""
THERE = """
there = bytearray(b"1") * 2**25
with in_large_pages():
    pass
assert n_large() - before < 2**22
wanted = 0
"""
OPENED = """
model = open_model(load_bundle("models/default"), "cpu", 1, "q8")
wanted = model.bundle.variants["q8"].stat().st_size / 4  # they lie in several places
"""
# Without memory in one piece Linux refuses.
END = "assert n_large() - before >= wanted or free < 2**28, (n_large(), before, free)\n"


@pytest.mark.skipif(not THP.is_dir(), reason="no large pages in this kernel")
@pytest.mark.parametrize("part", [WRITTEN, THERE, OPENED], ids=["new", "old", "a model"])
def test_new_memory_and_the_weights_of_a_model_lie_in_large_pages(part: str) -> None:
    command = [sys.executable, "-c", BEGIN + part + END]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
