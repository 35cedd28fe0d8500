"""The next batch is made while a GPU computes: the same one, in order, and its errors are told."""

import threading

import pytest
from conftest import SECONDS

from gptcore.checks import UserError
from training.machine.prefetch import Prefetch


def test_the_next_one_is_begun_before_it_is_asked_for_and_made_once() -> None:
    begun, made = {step: threading.Event() for step in range(9)}, []

    def make(step: int) -> int:
        made.append((step, threading.current_thread().daemon))
        begun[step].set()
        return 10 * step

    batches = Prefetch(make)
    assert batches(3) == 30 and begun[4].wait(SECONDS)
    assert batches(4) == 40 and begun[5].wait(SECONDS)
    assert batches(7) == 70  # another than the next is made then
    assert begun[8].wait(SECONDS)
    assert sorted(step for step, _ in made)[:4] == [3, 4, 5, 7]
    assert all(is_daemon for _, is_daemon in made), "the program's end waits for nobody"


def test_an_error_is_raised_where_its_step_is_asked_for() -> None:
    def make(step: int) -> int:
        if step == 2:
            raise UserError("train-00001.bin was cut short")
        return step

    batches = Prefetch(make)
    assert batches(1) == 1
    with pytest.raises(UserError, match="was cut short"):
        batches(2)
