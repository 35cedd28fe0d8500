"""What the benchmarks measure with."""

import resource
import subprocess
from pathlib import Path

import pytest

from benchmarks.memory import peak_memory, resident


def test_memory_is_counted_in_bytes() -> None:
    """Beside the pages that Linux counts, which are in another file."""
    n_pages = int(Path("/proc/self/statm").read_text().split()[1])
    assert resident() == pytest.approx(n_pages * resource.getpagesize(), rel=0.01)
    assert peak_memory() >= 0.99 * resident()


def test_a_program_that_has_just_ended_holds_no_memory() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert resident(program.pid) > 0
        program.stdin.close()
        assert not program.stdout.read()
        while resident(program.pid):
            pass
