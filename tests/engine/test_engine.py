"""The engine over a made-up cache: who is answered, when, and that a crowd changes no reply."""

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from conftest import ROOT
from made_engine import (
    BLOCK,
    BYTES,
    SECONDS,
    WARM,
    Reader,
    V,
    alone,
    ask,
    new_engine,
    prompt,
    wait_until_idle,
)

from gptcore.checks import Busy, UserError
from gptcore.engine import scheduler
from gptcore.engine.generate import Piece, Reply, Request
from gptcore.engine.sampling import Sampling
from gptcore.engine.scheduler import READ_BESIDE, READ_LEAST
from gptcore.engine.schemas.grammar import json_grammar


@pytest.mark.parametrize("n_slots", [1, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_in_a_crowd_each_reply_is_what_it_is_alone(n_slots: int, seed: int) -> None:
    """Prompts that begin alike, of all lengths, some sliding, arriving at any moment."""
    engine, _ = new_engine(n_slots)
    rng, shared = np.random.default_rng(seed), prompt(99, 60)
    requests = []
    for i in range(24):
        ids = [*shared[: rng.integers(0, 60)], *prompt(i, int(rng.integers(1, 30)))]
        sampling = Sampling(float(rng.choice([0.0, 0.7, 1.5])), top_k=int(rng.choice([0, 5])),
                            repetition_penalty=float(rng.choice([1.0, 1.3])), seed=i)  # fmt: skip
        wanted = int(rng.integers(1, 40))
        requests.append(Request(ids, sampling, wanted, slide=bool(rng.random() < 0.2)))
    readers = []
    for request in requests:
        readers += ask(engine, request)
        time.sleep(rng.choice([0.0, 0.002]))
    for reader, request in zip(readers, requests):
        assert reader.ids() == alone(request)
    wait_until_idle(engine)


def test_replies_are_written_together() -> None:
    engine, cache = new_engine(8)
    cache.held_at = 1
    seeded = Sampling(temperature=1.0, top_k=0, seed=1)  # another seed may end one at once
    readers = ask(engine, *(Request(prompt(i, 5), seeded, 50) for i in range(8)))
    cache.released.release()  # all have asked
    for reader in readers:
        reader.ids()
    assert max(n for kind, n in cache.calls if kind == "step") == 8


def test_no_reply_waits_for_more_than_a_part_of_a_prompt() -> None:
    engine, cache = new_engine(3)
    cache.held_at = 3
    (first,) = ask(engine, Request(prompt(0, 3), Sampling(temperature=0), 80))
    cache.wait_until_held()
    others = ask(engine, *(Request(prompt(i, 90), WARM, 2) for i in range(1, 5)))
    cache.released.release()
    assert len(first.ids()) > 30  # its reply is the longest by far
    assert [len(other.ids()) for other in others] == [2] * 4
    read = [0]
    for kind, n in cache.calls[1:]:
        if kind == "step":
            read.append(0)
        else:
            read[-1] += n
    assert sum(read) == 4 * 90
    assert max(read) <= READ_BESIDE + 1  # no last token is left alone


def test_those_who_find_no_slot_are_answered_in_the_order_of_their_arrival() -> None:
    engine, _ = new_engine(2)
    order = []
    requests = [Request(prompt(i, 4), Sampling(temperature=0), 5) for i in range(10)]
    readers = [Reader() for _ in requests]
    for i, (reader, request) in enumerate(zip(readers, requests)):

        def deliver(piece: Piece | Exception, i: int = i, reader: Reader = reader) -> None:
            reader(piece)
            if i not in order:
                order.append(i)

        engine.submit(request, reader.stop, deliver)
    for reader in readers:
        reader.ids()
    assert order == sorted(order)


def test_who_has_fewer_slots_comes_first_and_nobody_has_all() -> None:
    engine, cache = new_engine(3)
    cache.held_at = 1
    order: list[str] = []
    readers: list[Reader] = []
    held: list[int] = []
    for i, asker in enumerate(["many"] * 5 + ["few", "one", "few"]):
        readers.append(Reader())

        def deliver(piece: Piece | Exception, i: int = i, asker: str = asker) -> None:
            if not readers[i].pieces:
                order.append(asker)
            held.append(engine.held()["many"])
            readers[i](piece)

        request = Request(prompt(i, 4), Sampling(temperature=0), 5)
        engine.submit(request, readers[i].stop, deliver, asker)
        cache.wait_until_held()  # the first is read, and keeps its slot
    cache.released.release()
    assert [len(reader.ids()) for reader in readers] == [5] * 8
    assert order[:3] == ["many", "few", "one"]
    assert max(held) == 2


def test_the_next_turn_of_a_conversation_reads_what_is_new() -> None:
    engine, _ = new_engine(4)
    ids = prompt(0, 20)
    reply = ask(engine, Request(ids, Sampling(temperature=0), 10))[0].ids()
    others = ask(engine, *(Request(prompt(i, 20), WARM, 5) for i in range(1, 3)))
    for other in others:
        other.ids()
    before = engine.slots.n_read
    turn = [*ids, *reply, 7, 8, 9]
    assert ask(engine, Request(turn, Sampling(temperature=0), 1))[0].ids()
    assert engine.slots.n_read - before == 4, "the reply's last token, and the three new ones"


def test_a_beginning_that_another_conversation_has_read_is_copied() -> None:
    engine, _ = new_engine(4)
    system = prompt(5, 40)
    ask(engine, Request([*system, *prompt(6, 50)], WARM, 1))[0].ids()
    before = engine.slots.n_read
    request = Request([*system, *prompt(7, 10)], Sampling(temperature=0), 5)
    ids = ask(engine, request)[0].ids()
    assert engine.slots.n_read - before == 10 + len(ids) - 1
    assert ids == alone(request)


@pytest.mark.parametrize("n_known", [0, 20])
def test_replies_to_one_prompt_read_it_once(n_known: int) -> None:
    engine, cache = new_engine(4)
    ids = prompt(5, 60)
    if n_known:
        ask(engine, Request(ids[:n_known], WARM, 1))[0].ids()
    cache.held_at = len(cache.calls) + 1
    before = engine.slots.n_read
    requests = [Request(ids, Sampling(1.0, 0, seed=i), 1) for i in range(4)]
    (blocking,) = ask(engine, Request([1], WARM, 1))
    cache.wait_until_held()
    readers = ask(engine, *requests)  # which get their slots within one step
    cache.released.release()
    assert [reader.ids() for reader in (blocking, *readers)][1:] == [*map(alone, requests)]
    n_read = engine.slots.n_read - before
    assert n_read == 1 + 60 - n_known + 3 * 2, "of the others the last two tokens"


def test_the_conversation_that_rested_longest_gives_its_slot() -> None:
    engine, _ = new_engine(3)
    prompts = [prompt(i, 30) for i in range(4)]
    for ids in [*prompts[:3], prompts[0], prompts[3]]:
        ask(engine, Request(ids, WARM, 1))[0].ids()
    read = []
    for ids in (prompts[0], prompts[2], prompts[3]):
        before = engine.slots.n_read
        ask(engine, Request(ids, WARM, 1))[0].ids()
        read.append(engine.slots.n_read - before)
    assert read == [2, 2, 2]  # of a prompt that is known its last two tokens
    before = engine.slots.n_read
    ask(engine, Request(prompts[1], WARM, 1))[0].ids()
    assert engine.slots.n_read - before == 30, "it was the oldest when the fourth came"


@pytest.mark.parametrize("state", ["waiting", "reading", "writing"])
def test_a_stop_ends_one_reply_and_keeps_its_text(state: str) -> None:
    engine, cache = new_engine(1 if state == "waiting" else 3)
    cache.held_at = 1
    length = 60 if state == "reading" else 5
    wanted = [Request(prompt(0, 5), Sampling(1.0, 0, seed=3), 40)]
    wanted.append(Request(prompt(1, length), Sampling(1.0, 0, seed=4), 30))
    whole = alone(wanted[1])
    assert len(whole) > 12
    first, second = ask(engine, *wanted)
    cache.wait_until_held()
    if state == "writing":  # on busy cores the first would write alone for a while
        cache.held_at = 6
        cache.released.release()
        cache.wait_until_held()
    second.stop.set()
    cache.released.release()
    told = second.ids()
    assert told == whole[: len(told)] and len(told) < 8
    assert (state == "writing") == bool(told)
    assert second.finish == "stopped"
    assert first.ids() == alone(wanted[0])
    wait_until_idle(engine)


def test_closing_the_iterator_ends_the_work() -> None:
    engine, cache = new_engine(2)
    request = Request(prompt(0, 3), Sampling(temperature=0), 90)
    assert len(alone(request)) > 30
    cache.held_at = 6
    pieces = engine.answer(request)
    next(pieces)
    cache.wait_until_held()
    pieces.close()
    cache.released.release()
    wait_until_idle(engine)
    assert len(cache.calls) <= 7


def test_a_flag_given_by_the_asker_is_left_to_the_asker() -> None:
    """One event of a Stop button does for all replies."""
    engine, cache = new_engine(2)
    request, stop = Request(prompt(0, 3), Sampling(temperature=0), 90), Event()
    for _ in range(2):
        told = [i for piece in engine.answer(request, stop) for i in piece.token_ids]
        assert told == alone(request)
    pieces = engine.answer(request, stop)
    next(pieces)
    pieces.close()
    assert not stop.is_set()
    wait_until_idle(engine)
    cache.held_at = len(cache.calls) + 6
    pieces = engine.answer(request, stop)
    next(pieces)
    cache.wait_until_held()
    stop.set()
    cache.released.release()
    assert [*pieces][-1].finish == "stopped"


def test_a_reader_who_raises_is_given_up_and_the_others_read_on() -> None:
    engine, _ = new_engine(2)

    def vanish(piece: Piece | Exception) -> None:
        raise ConnectionError

    request = Request(prompt(1, 4), Sampling(temperature=0), 30)
    engine.submit(Request(prompt(0, 4), WARM, 90), Event(), vanish)
    assert ask(engine, request)[0].ids() == alone(request)
    wait_until_idle(engine)


def test_an_error_of_the_graph_reaches_everybody_and_the_next_request_is_answered() -> None:
    engine, cache = new_engine(2, seconds=0.001)
    cache.failing = {255}
    good = [Request([1, 2, 3], Sampling(1.0, 0, seed=1), 90), Request([4, 5], WARM, 90)]
    readers = ask(engine, *good, Request([255], WARM, 5))
    for reader in readers:
        assert reader.done.wait(SECONDS)
    assert isinstance(readers[-1].pieces[-1], RuntimeError)
    cache.failing = set()
    request = Request([1, 2, 3, 4], Sampling(temperature=0), 8)
    assert ask(engine, request)[0].ids() == alone(request)
    wait_until_idle(engine)


def test_who_waits_when_the_graph_fails_is_told_so_and_not_answered_later() -> None:
    engine, cache = new_engine(1)
    cache.held_at = 3
    first, second = ask(engine, *[Request([1, 2], Sampling(temperature=0), 60)] * 2)
    cache.failing = {*range(V)}
    cache.released.release()
    assert first.done.wait(SECONDS) and second.done.wait(SECONDS)
    cache.failing = set()
    wait_until_idle(engine)
    assert [type(piece) for piece in second.pieces] == [RuntimeError]


@pytest.mark.parametrize("n", [60, 3])
def test_an_error_at_the_end_of_a_reply_reaches_everybody(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """As where there is no memory for its probabilities; one reply is written, and one waits."""
    engine, _ = new_engine(1, seconds=0.01)
    take = Reply.take

    def failing(reply: Reply) -> Piece:
        if reply.finish:
            raise MemoryError
        return take(reply)

    monkeypatch.setattr(Reply, "take", failing)
    first, second = ask(engine, *[Request([1, 2], Sampling(temperature=0), n)] * 2)
    second.stop.set()
    for reader in (first, second):
        assert reader.done.wait(SECONDS) and isinstance(reader.pieces[-1], MemoryError)
    wait_until_idle(engine)


def test_logits_that_are_not_finite_end_one_reply() -> None:
    engine, cache = new_engine(3)
    cache.broken = {254}
    request = Request([1, 2, 3], Sampling(temperature=0), 20)
    good, bad = ask(engine, request, Request([9, 254], WARM, 5))
    assert bad.done.wait(SECONDS)
    (error,) = bad.pieces
    assert isinstance(error, UserError) and "not finite" in str(error)
    assert good.ids() == alone(request)
    wait_until_idle(engine)


PETS = {"type": "array", "items": {"enum": ["cat", "dog"]}, "maxItems": 3}


def test_replies_with_a_grammar_and_without_are_together_what_they_are_alone() -> None:
    engine, _ = new_engine(6)
    grammar = json_grammar(PETS, BYTES)
    requests = [
        Request(prompt(i, 9), replace(WARM, seed=i), 60, grammar=grammar if i % 2 else None)
        for i in range(12)
    ]
    readers = ask(engine, *requests)
    assert [reader.ids() for reader in readers] == [alone(request) for request in requests]
    for reader in readers[1::2]:
        assert reader.finish == "end"
        assert {*json.loads(BYTES.decode(reader.ids()))} <= {"cat", "dog"}


def test_a_grammar_that_becomes_too_complex_ends_one_reply() -> None:
    engine, _ = new_engine(2)
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    grammars = [json_grammar(schema, BYTES) for schema in (endless, PETS)]
    bad, good = ask(engine, *(Request([5], WARM, 60, grammar=grammar) for grammar in grammars))
    assert good.ids() and bad.done.wait(SECONDS)
    assert "too complex" in str(bad.pieces[-1])
    wait_until_idle(engine)


@pytest.mark.parametrize(("length", "n_words"), [(0, "is empty"), (BLOCK, f"has {BLOCK} tokens; ")])
def test_a_prompt_that_leaves_no_room_is_refused_at_once(length: int, n_words: str) -> None:
    engine, _ = new_engine(1)
    with pytest.raises(UserError, match=f"the prompt {n_words}"):
        engine.submit(Request([1] * length), Event(), Reader())
    with pytest.raises(UserError, match=f"the prompt {n_words}"):
        engine.answer(Request([1] * length))
    assert engine.n_running == 0


def test_an_echo_may_fill_the_context_and_is_scored_only_if_that_is_wanted() -> None:
    engine, _ = new_engine(1)  # whose cache gives the logits after the last token alone
    ids = prompt(0, BLOCK)
    (reader,) = ask(engine, Request(ids, WARM, 0, echo=True))
    assert reader.ids() == [] and reader.finish == "length"
    assert [(told.token_id, told.logprob) for told in reader.pieces[0].prompt] == [
        (i, None) for i in ids
    ]
    with pytest.raises(UserError, match=f"the context holds {BLOCK}: shorten it"):
        ask(engine, Request([*ids, 1], WARM, 0, echo=True))


def test_text_comes_several_tokens_at_a_time_and_the_first_at_once() -> None:
    engine, _ = new_engine(1)
    (reader,) = ask(engine, Request(prompt(3, 4), Sampling(1.0, 0, seed=1), 60))
    ids = reader.ids()
    assert len(reader.pieces[0].token_ids) == 1
    assert len(reader.pieces) < len(ids) / 2
    assert [piece.n_new for piece in reader.pieces][-1] == len(ids)


def test_the_thread_lives_as_long_as_there_is_work() -> None:
    """Its name tells who looks at a process that hangs what it is."""
    before, (engine, _) = {*threading.enumerate()}, new_engine(1, seconds=0.001)
    for n in range(1, 4):
        (reader,) = ask(engine, Request([1, 2], Sampling(temperature=0), 20))
        [working] = {*threading.enumerate()} - before
        assert working.name == "engine"
        reader.ids()
        wait_until_idle(engine)
        assert engine.n_finished == n
        working.join(SECONDS)
    assert {*threading.enumerate()} <= before


def test_the_end_of_the_program_ends_the_replies_before_python_itself_ends() -> None:
    """A step of ONNX Runtime that goes on while Python ends would abort the process."""
    script = (
        "import atexit, sys\n"
        f"sys.path += {[str(ROOT), str(ROOT / 'tests')]}\n"
        "from gptcore.engine.generate import Request\n"
        "from gptcore.engine.sampling import Sampling\n"
        "from made_engine import ask, new_engine\n"
        "engine, _ = new_engine(1, seconds=0.1)\n"
        "say = lambda: print(engine.n_running, engine.n_finished, engine.n_new < 9)\n"
        "atexit.register(say)\n"  # which is called when the threads have ended
        "readers = ask(engine, *2 * [Request([1, 2], Sampling(temperature=0), 10_000)])\n"
        "raise SystemExit(141)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (141, "0 2 True\n", "")


def test_where_no_thread_is_to_be_had_who_asks_is_told_and_the_next_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, _ = new_engine(1)

    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "Thread", NoThread)
        with pytest.raises(RuntimeError):
            ask(engine, Request([1, 2], Sampling(temperature=0), 20))
    assert engine.n_running == 0
    (reader,) = ask(engine, Request([1, 2], Sampling(temperature=0), 20))
    assert reader.ids()


@pytest.mark.parametrize(
    ("n", "seconds", "fitting"),
    [(32, 0.15, 32), (32, 0.1, 32), (32, 0.07, 64), (64, 0.6, 16), (8, 0.0, 128), (128, 9.0, 8)],
)
def test_a_prompt_is_read_in_parts_as_long_as_fit_the_time(
    n: int, seconds: float, fitting: int
) -> None:
    """Of 0.15 s, after so many seconds for n tokens: a power of two, within limits."""
    engine, cache = new_engine(1)
    engine.pace(n, seconds)
    engine.pace(READ_LEAST - 1, 5.0)  # of so few the time tells nothing
    (reader,) = ask(engine, Request(prompt(0, 90), WARM, 1))
    reader.ids()
    assert cache.calls[0] == ("read", min(fitting, 90))


def test_a_crowd_is_refused_but_those_who_went_away_are_none_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "MAX_WAITING", 3)
    engine, cache = new_engine(1)
    cache.held_at = 3
    request = Request([1, 2], Sampling(temperature=0), 60)
    (first,) = ask(engine, request)
    cache.wait_until_held()
    waiting = ask(engine, request, request, request)
    with pytest.raises(Busy, match="3 requests wait already: try again"):
        ask(engine, request)
    waiting[1].stop.set()
    (last,) = ask(engine, request)
    for reader in (first, waiting[0], waiting[2], last):
        reader.stop.set()
    cache.released.release()
    wait_until_idle(engine)
    assert last.finish == "stopped"


def test_many_threads_may_ask_at_once() -> None:
    engine, _ = new_engine(4)
    requests = [Request(prompt(i, 6), Sampling(1.0, 0, seed=i), 12) for i in range(40)]
    found: dict[int, list[int]] = {}

    def talk(i: int) -> None:
        found[i] = [t for piece in engine.answer(requests[i]) for t in piece.token_ids]

    threads = [threading.Thread(target=talk, args=[i]) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert found == {i: alone(request) for i, request in enumerate(requests)}
