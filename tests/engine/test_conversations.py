"""Many conversations with an exported model: what is read twice, who gets which text, and stops."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest
from conftest import SECONDS, until
from trained import open_graph

from gptcore.bundle import default_model
from gptcore.checks import UserError
from gptcore.engine.generate import Piece, Reply, Request, chat, chat_request, generate
from gptcore.engine.onnx_session import open_slots
from gptcore.engine.sampling import Sampling
from gptcore.engine.scheduler import Engine
from gptcore.model import OnnxModel, load_model
from gptcore.text.chat_template import render

GREEDY = Sampling(temperature=0)
HOT = Sampling(temperature=2.0, top_k=0, seed=3)  # replies that a tokenizer would split otherwise
N_SLOTS = 8
AGAIN = 2  # tokens read of a prompt that was read before


class Counting(OnnxModel):
    """Counts the tokens that it computes."""

    def __init__(self, model: OnnxModel):
        super().__init__(model.bundle, model.inference, 1, model.variant)
        self.n_before = 0

    @property
    def n_computed(self) -> int:
        """The number of tokens computed since this was last asked for."""
        before, self.n_before = self.n_before, self.engine.slots.n_read
        return self.n_before - before


@pytest.fixture(params=["serving", "portable"])
def counting(model: OnnxModel, request: pytest.FixtureRequest) -> Counting:
    """The tiny model with either of its graphs, before anyone has talked to it."""
    return Counting(open_graph(model.bundle, request.param))


@pytest.fixture
def engine(counting: Counting) -> Engine:
    """One of few slots."""
    slots = open_slots(counting.inference, counting.config, N_SLOTS)
    return Engine(slots, counting.tokenizer)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(model: OnnxModel, messages: list, **options) -> tuple[str, Piece]:
    """The reply, which is added to the messages, and the last piece."""
    options = {"sampling": GREEDY, "max_tokens": 12} | options
    pieces = list(chat(model, messages, **options))
    text = "".join(piece.text for piece in pieces)
    messages.append({"role": "assistant", "content": text})
    assert [bool(piece.finish) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(piece.n_prompt + piece.n_new <= model.config.block_size for piece in pieces)
    assert sum(len(piece.token_ids) for piece in pieces) == pieces[-1].n_new
    return text, pieces[-1]


@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "hot"])
@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "Be kind."}]], ids=len)
def test_each_turn_of_a_conversation_computes_its_new_tokens_alone(
    counting: Counting, sampling: Sampling, system: list
) -> None:
    messages, n_before = list(system), 0
    for text in ("Hello! How are you?", "What is my name?", "Tell me a story.", "Thank you"):
        messages.append(user(text))
        _, piece = answer(counting, messages, sampling=sampling)
        n_read = piece.n_prompt + piece.n_new - (piece.finish != "end")  # all but the last token
        assert counting.n_computed == n_read - n_before
        n_before = n_read


def test_an_edited_message_is_read_anew_from_there(counting: Counting) -> None:
    messages = []
    for text in ("Hello! How are you?", "What is the capital of France?", "What is 2 plus 2?"):
        messages.append(user(text))
        answer(counting, messages)
    edited = [*messages[:4], user("What is 2 times 3?")]
    prompts = [
        render(turns, counting.tokenizer, prompt=True, recall=counting.recall)
        for turns in (messages[:5], edited)
    ]
    n_shared = [a == b for a, b in zip(*prompts)].index(False)
    assert 30 < n_shared < len(prompts[0]) - 5
    assert counting.n_computed > 0
    _, piece = answer(counting, edited)
    assert piece.n_prompt == len(prompts[1])
    n_read = piece.n_prompt + piece.n_new - (piece.finish != "end")
    assert counting.n_computed == n_read - n_shared


def test_two_conversations_in_turn_keep_their_own_caches(counting: Counting) -> None:
    conversations, n_before = ([], []), [0, 0]
    for texts in (("Hello!", "Good morning, who are you?"), ("What?", "Why?"), ("Bye", "Thanks")):
        for i, text in enumerate(texts):
            conversations[i].append(user(text))
            _, piece = answer(counting, conversations[i])
            n_read = piece.n_prompt + piece.n_new - (piece.finish != "end")
            shared = 0 if n_before[i] else 2  # <|endoftext|><|user|> at the most
            n_new = n_read - n_before[i]
            assert n_new - shared <= counting.n_computed <= n_new
            n_before[i] = n_read


def test_the_oldest_turns_are_left_out_when_the_context_is_full(counting: Counting) -> None:
    messages, all_dropped = [{"role": "system", "content": "Be kind."}], []
    budget = counting.config.block_size - 12
    for i in range(20):
        messages.append(user(f"Tell me a story about the number {i}."))
        rests = {n: messages[:1] + messages[1 + n :] for n in range(0, len(messages) - 1, 2)}
        options = {"prompt": True, "recall": counting.recall}
        lengths = {n: len(render(m, counting.tokenizer, **options)) for n, m in rests.items()}
        n_dropped = min(n for n, length in lengths.items() if length <= budget)
        _, piece = answer(counting, messages, max_tokens=12)
        assert (piece.n_dropped, piece.n_prompt) == (n_dropped, lengths[n_dropped])
        all_dropped.append(piece.n_dropped)
    assert all_dropped[0] == 0 and all_dropped[-1] > 10
    assert all_dropped == sorted(all_dropped), "ever more of them"


def test_four_threads_get_the_texts_that_they_would_get_one_after_another(
    counting: Counting,
) -> None:
    openings = [[user(f"{word}, tell me {i}")] for i, word in enumerate(["Hello", "Hi", "Yes"])]
    openings *= 4  # the same conversation several times at once, too

    def talk(messages: list, model: OnnxModel) -> list[str]:
        messages = list(messages)
        texts = [answer(model, messages, max_tokens=30, sampling=HOT)[0]]
        messages.append(user("And then?"))
        return [*texts, answer(model, messages, max_tokens=30, sampling=HOT)[0]]

    expected = [talk(messages, Counting(counting)) for messages in openings]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(talk, openings, [counting] * len(openings))) == expected
    assert len({*map(tuple, expected)}) == 3 and counting.engine.n_running == 0


# ------------------------------------------------------------------ slots, fewer than prompts


def read(engine: Engine, prompt: list[int]) -> int:
    """How many tokens have to be computed for a prompt."""
    before = engine.slots.n_read
    (piece,) = engine.answer(Request(prompt, GREEDY, max_tokens=1))
    assert piece.finish
    return engine.slots.n_read - before


def conversation(i: int) -> list[int]:
    """All begin alike, as after the same system prompt."""
    return [506, 508, 1, 2, 3, *[10 + i] * 20]


def test_more_may_ask_at_once_than_there_are_slots_and_the_latest_are_kept(
    engine: Engine, counting: Counting
) -> None:
    requests = [Request(conversation(i), HOT, max_tokens=20) for i in range(N_SLOTS + 3)]
    expected = []
    for request in requests:
        expected.append([*Counting(counting).answer(request)][-1].n_new)
    told: list[list[Piece]] = [[] for _ in requests]
    for request, pieces in zip(requests, told):
        engine.submit(request, Event(), pieces.append)
    until(lambda: not engine.n_running)
    assert [pieces[-1].n_new for pieces in told] == expected
    for request in requests[-N_SLOTS:]:
        read(engine, request.ids)
    assert [read(engine, request.ids) for request in requests[-N_SLOTS:]] == [AGAIN] * N_SLOTS
    assert read(engine, conversation(0)) > 15


# ------------------------------------------------------------------ and when it is stopped


def test_a_stop_that_was_set_before_ends_the_work_before_it_begins(counting: Counting) -> None:
    stop, n_before = Event(), len(list(counting.answer(Request([1, 2], GREEDY, 1))))
    assert (n_before, counting.n_computed) == (1, 2)
    stop.set()
    (piece,) = counting.answer(Request([1, 2, 3, 4], GREEDY), stop)
    assert (piece.text, piece.n_new, piece.finish) == ("", 0, "stopped")
    assert counting.n_computed == 0 and counting.engine.n_running == 0


@pytest.fixture(params=["serving", "portable"])
def slow(slow_model: OnnxModel, request: pytest.FixtureRequest) -> Counting:
    """The slow model with either graph, before anyone has talked to it."""
    return Counting(open_graph(slow_model.bundle, request.param))


def test_a_stop_in_the_middle_of_a_reply_keeps_its_text_and_its_cache(slow: Counting) -> None:
    stop, pieces, messages = Event(), [], [user("Hello!")]
    steps = chat(slow, messages, GREEDY, max_tokens=1000, stop=stop)
    thread = threading.Thread(target=lambda: pieces.extend(steps_seen(steps, seen)))
    seen = threading.Semaphore(0)
    thread.start()
    for _ in range(5):
        assert seen.acquire(timeout=SECONDS)
    stop.set()
    thread.join(SECONDS)
    assert not thread.is_alive() and slow.engine.n_running == 0
    assert pieces[-1].finish == "stopped" and 5 <= pieces[-1].n_new < 100
    text = "".join(piece.text for piece in pieces)
    assert len(slow.tokenizer.encode(text)) > 1
    assert slow.n_computed >= pieces[-1].n_prompt + pieces[-1].n_new - 1

    messages += [{"role": "assistant", "content": text}, user("Go on.")]
    _, last = answer(slow, messages, max_tokens=3)
    assert last.finish == "length"
    assert slow.n_computed < 20, "what was read before the stop is not read again"


def steps_seen(steps: Iterator[Piece], seen: threading.Semaphore) -> Iterator[Piece]:
    for piece in steps:
        seen.release()
        yield piece


def test_a_stop_in_the_middle_of_a_long_prompt_ends_it(slow: Counting) -> None:
    stop, messages, pieces = Event(), [user("Hello, how are you? " * 200)], []
    steps = chat(slow, messages, GREEDY, max_tokens=3, stop=stop)
    thread = threading.Thread(target=lambda: pieces.extend(steps))
    thread.start()
    until(lambda: slow.engine.slots.n_read)
    stop.set()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert [(piece.text, piece.n_new, piece.finish) for piece in pieces] == [("", 0, "stopped")]
    assert pieces[0].n_prompt > 1200 and slow.engine.n_running == 0
    n_read = slow.n_computed
    assert 0 < n_read < pieces[0].n_prompt, "it was in the middle"
    last = answer(slow, messages, max_tokens=3)[1]
    assert last.finish == "length"
    assert slow.n_computed == last.n_prompt + 2 - n_read, "what it had read is still there"


@pytest.fixture(scope="module")
def shipped() -> OnnxModel:
    return load_model(default_model(), threads=1)


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(temperature=0, repetition_penalty=1.3)]
)
def test_a_begun_reply_goes_on_as_it_would_have(shipped: OnnxModel, sampling: Sampling) -> None:
    messages = [{"role": "user", "content": "Tell me a story about a cat. 猫 🐈"}]
    whole = chat_request(shipped, messages, sampling, 40)
    pieces = [*shipped.answer(whole)]
    ids = [i for piece in pieces for i in piece.token_ids]
    text = "".join(piece.text for piece in pieces)
    for n in (1, 7, len(ids) - 1):
        request = chat_request(shipped, messages, sampling, 40 - n, ids[:n])
        for model in (
            shipped.answer,
            lambda r: generate(shipped.session(), Reply(r, shipped.tokenizer, 512)),
        ):
            more = [*model(replace(request, n_top=1))]
            assert [i for piece in more for i in piece.token_ids] == ids[n:]
            assert text.endswith(rest := "".join(piece.text for piece in more))
            assert shipped.tokenizer.decode(ids[:n]) + rest == text
            assert more[-1].finish == pieces[-1].finish and more[-1].n_new == len(ids) - n
            told = [x.token_id for piece in more for x in piece.likelihoods]
            assert told[: len(ids) - n] == ids[n:]


def test_a_begun_reply_that_leaves_no_room_is_refused(shipped: OnnxModel) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    n = len(chat_request(shipped, messages, Sampling(), 10).ids)
    assert len(chat_request(shipped, messages, Sampling(), 10, [5] * (511 - n)).ids) == n
    said = f"reply that is begun has {512 - n} tokens and the prompt {n}; the context holds 512"
    with pytest.raises(UserError, match=said):
        chat_request(shipped, messages, Sampling(), 10, [5] * (512 - n))
    with pytest.raises(UserError, match="has 512 tokens"):
        Request([5] * 12, Sampling(), 10, begun=(6,) * 500).check(512)
