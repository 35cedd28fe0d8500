"""Generation: how it ends, what a conversation reads, and many of them at a time."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice

import numpy as np
import pytest

from export.verify.decoder import load_reference
from gptcore.checks import UserError
from gptcore.generate import Interrupted, Piece, Stop, chat, complete, generate
from gptcore.nn.torch_session import UncachedTorchSession
from gptcore.onnx_session import OnnxModel, OnnxSession, RunStop
from gptcore.sampling import Sampling
from gptcore.text.chat_template import render
from gptcore.text.tokenizer import Tokenizer

BYTES = Tokenizer({bytes([byte]): byte for byte in range(256)})  # a token is a byte
END, ENDOFTEXT = BYTES.special["<|end|>"], BYTES.special["<|endoftext|>"]
GREEDY = Sampling(temperature=0)


class Scripted:
    """A Session that says given tokens, whatever it reads; None ends it as a stop would."""

    def __init__(self, reply: list[int | None]):
        self.reply, self.read = iter(reply), []

    def prefill(self, ids: list[int], stop: Stop | None = None) -> np.ndarray:
        self.read += ids
        token_id = next(self.reply)
        if token_id is None:
            raise Interrupted
        return np.eye(BYTES.vocab_size, dtype=np.float32)[token_id]

    def step(self, token_id: int, stop: Stop | None = None) -> np.ndarray:
        return self.prefill([token_id], stop)


def say(reply: list[int | None], max_tokens: int = 100, block_size: int = 100) -> list[Piece]:
    return list(generate(Scripted(reply), [1, 2, 3], BYTES, block_size, GREEDY, max_tokens))


@pytest.mark.parametrize("end", [END, ENDOFTEXT])
def test_a_reply_ends_with_the_token_for_it_which_is_no_part_of_the_text(end: int) -> None:
    assert say([*b"Hi", end]) == [
        Piece("H", 3, 1, token_id=ord("H")),
        Piece("i", 3, 2, token_id=ord("i")),
        Piece("", 3, 2, "end"),
    ]


def test_an_empty_reply_is_a_reply() -> None:
    assert say([END]) == [Piece("", 3, 0, "end")]


@pytest.mark.parametrize(
    ("max_tokens", "block_size", "n_new", "finish"),
    [(4, 100, 4, "length"), (1, 100, 1, "length"), (100, 8, 5, "context"), (6, 8, 5, "context"),
     (5, 8, 5, "length"), (100, 4, 1, "context")],
)  # fmt: skip
def test_a_reply_ends_at_max_tokens_or_with_the_context(
    max_tokens: int, block_size: int, n_new: int, finish: str
) -> None:
    session = Scripted([*b"abcdefgh"])
    pieces = list(generate(session, [1, 2, 3], BYTES, block_size, GREEDY, max_tokens))
    assert [piece.token_id for piece in pieces] == list(b"abcdefgh"[:n_new])
    assert [piece.finish for piece in pieces] == [None] * (n_new - 1) + [finish]
    assert [piece.n_new for piece in pieces] == list(range(1, n_new + 1))
    assert 3 + n_new <= block_size and len(session.read) < block_size


def test_a_split_character_comes_whole_and_an_unfinished_one_is_marked() -> None:
    texts = [piece.text for piece in say([*"é🙂".encode(), END])]
    assert texts == ["", "é", "", "", "", "🙂", ""]
    texts = [piece.text for piece in say([*b"a", *"🙂".encode()], max_tokens=3)]
    assert texts == ["a", "", "\ufffd"]


def test_a_stop_keeps_the_text_so_far() -> None:
    *pieces, last = say([*b"Hi", None])
    assert "".join(piece.text for piece in pieces) == "Hi"
    assert last == Piece("", 3, 2, "stopped")
    assert say([None]) == [Piece("", 3, 0, "stopped")]


def test_closing_the_iterator_ends_the_work() -> None:
    session = Scripted([*b"abcdefgh"])
    steps = generate(session, [1, 2, 3], BYTES, 100, GREEDY)
    assert [piece.token_id for piece in islice(steps, 2)] == list(b"ab")
    steps.close()
    assert session.read == [1, 2, 3, ord("a")]


def test_the_penalty_looks_at_the_reply_and_not_at_the_prompt() -> None:
    class Undecided(Scripted):
        def prefill(self, ids: list[int], stop: Stop | None = None) -> np.ndarray:
            logits = np.zeros(BYTES.vocab_size, np.float32)
            logits[[5, 6]] = 2.0, 1.5
            return logits

    sampling = Sampling(temperature=0, repetition_penalty=2)
    steps = generate(Undecided([]), [5, 5, 5], BYTES, 100, sampling, max_tokens=4)
    assert [piece.token_id for piece in steps] == [5, 6, 5, 5], "2.0, 1.5, then 1.0 over 0.75"


@pytest.mark.parametrize("length", [0, 100, 101])
def test_a_prompt_that_leaves_no_room_is_refused(length: int) -> None:
    with pytest.raises(UserError, match=f"the prompt has {length} tokens; the context holds 100"):
        list(generate(Scripted([END]), [1] * length, BYTES, 100))


# ------------------------------------------------------------------ over the exported model


class Counting(OnnxModel):
    """Notes how many tokens each generation had to compute."""

    @contextmanager
    def lease(self, ids: list[int]) -> Iterator[OnnxSession]:
        with super().lease(ids) as session:
            before = session.n_read
            yield session
            self.n_computed = session.n_read - before


@pytest.fixture
def counting(model: OnnxModel) -> Counting:
    """The tiny model, before anyone has talked to it."""
    return Counting(model.bundle, model.inference, threads=1)


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
    return text, pieces[-1]


HOT = Sampling(temperature=2.0, top_k=0, seed=3)  # replies that a tokenizer would split otherwise


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
    assert 40 < n_shared < len(prompts[0]) - 5
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
            assert n_read - n_before[i] - shared <= counting.n_computed <= n_read - n_before[i]
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


@pytest.mark.parametrize("n_prompt", [1, 100, 200, 254, 255])
def test_prompt_and_reply_never_exceed_the_context(model: OnnxModel, n_prompt: int) -> None:
    block_size, ids = model.config.block_size, [97] * n_prompt
    with model.lease(ids) as session:
        pieces = list(generate(session, ids, model.tokenizer, block_size, GREEDY, block_size))
    last = pieces[-1]
    assert last.n_prompt == n_prompt
    assert last.finish == ("end" if last.n_prompt + last.n_new < block_size else "context")
    assert last.n_prompt + last.n_new <= block_size


def test_a_prompt_that_fills_the_context_is_refused(model: OnnxModel) -> None:
    with pytest.raises(UserError, match="the prompt has 256 tokens; the context holds 256"):
        list(generate(OnnxSession(model), [97] * 256, model.tokenizer, 256))


@pytest.mark.parametrize("n_words", [1, 40, 70])
def test_a_text_goes_on_beyond_the_context_as_the_textbooks_loop_does(
    base_model: OnnxModel, n_words: int
) -> None:
    """Every token follows the last block_size ones, computed without any cache."""
    block_size, tokenizer = base_model.config.block_size, base_model.tokenizer
    text = " a" * n_words
    pieces = list(complete(base_model, text, GREEDY, max_tokens=90))
    got = [piece.token_id for piece in pieces if piece.token_id is not None]
    reference = UncachedTorchSession(load_reference(base_model.bundle))
    ids = [tokenizer.special["<|endoftext|>"], *tokenizer.encode(text)]
    for token_id in got:
        assert token_id == int(reference.prefill(ids[-block_size:]).argmax())
        ids.append(token_id)
    assert pieces[-1].n_prompt == min(1 + n_words, block_size)
    assert len(got) == 90 or int(reference.prefill(ids[-block_size:]).argmax()) >= 506


def test_a_pasted_library_is_continued_without_encoding_it_all(base_model: OnnxModel) -> None:
    start = time.monotonic()
    pieces = list(complete(base_model, "a" * 50_000_000, GREEDY, max_tokens=2))
    assert pieces[-1].n_prompt == base_model.config.block_size
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("max_tokens", [0, -1, True, 1.5, float("nan"), "5", None])
def test_a_wrong_max_tokens_is_refused_before_the_first_piece(model: OnnxModel, max_tokens) -> None:
    with pytest.raises(UserError, match=r"max_tokens=.* must be a whole number of at least 1"):
        chat(model, [user("Hi")], max_tokens=max_tokens)
    with pytest.raises(UserError, match=r"max_tokens=.* must be a whole number of at least 1"):
        complete(model, "Hi", max_tokens=max_tokens)


def test_a_wrong_conversation_is_refused_before_the_first_piece(model: OnnxModel) -> None:
    with pytest.raises(UserError, match="the last message must be the user's"):
        chat(model, [])


def test_the_same_seed_gives_the_same_text_and_another_seed_another(model: OnnxModel) -> None:
    def text(seed: int) -> str:
        sampling = Sampling(temperature=1.5, top_k=0, seed=seed)
        return answer(model, [user("Hello!")], sampling=sampling, max_tokens=30)[0]

    assert text(1) == text(1) != text(2)
    assert text(-1) != text(-1)


def test_four_threads_get_the_texts_that_they_would_get_one_after_another(
    counting: Counting, model: OnnxModel
) -> None:
    openings = [[user(f"{word}, tell me {i}")] for i, word in enumerate(["Hello", "Hi", "Yes"])]
    openings *= 4  # the same conversation several times at once, too

    def talk(messages: list, model: OnnxModel) -> list[str]:
        messages = list(messages)
        texts = [answer(model, messages, max_tokens=30, sampling=HOT)[0]]
        messages.append(user("And then?"))
        return [*texts, answer(model, messages, max_tokens=30, sampling=HOT)[0]]

    expected = [
        talk(messages, OnnxModel(model.bundle, model.inference, 1)) for messages in openings
    ]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(talk, openings, [counting] * len(openings))) == expected
    assert len({*map(tuple, expected)}) == 3 and counting.n_leased == 0


# ------------------------------------------------------------------ and when it is stopped


def test_a_stop_in_the_middle_of_a_reply_keeps_its_text_and_its_cache(
    slow_model: OnnxModel,
) -> None:
    model = Counting(slow_model.bundle, slow_model.inference, threads=1)
    stop, pieces, messages = RunStop(), [], [user("Hello!")]
    steps = chat(model, messages, GREEDY, max_tokens=1000, stop=stop)
    thread = threading.Thread(target=lambda: pieces.extend(steps_seen(steps, seen)))
    seen = threading.Semaphore(0)
    thread.start()
    for _ in range(5):
        assert seen.acquire(timeout=30)
    stop.set()
    thread.join(timeout=1)
    assert not thread.is_alive() and model.n_leased == 0
    assert pieces[-1].finish == "stopped" and 5 <= pieces[-1].n_new < 100
    text = "".join(piece.text for piece in pieces)
    assert len(model.tokenizer.encode(text)) > 1

    messages += [{"role": "assistant", "content": text}, user("Go on.")]
    _, last = answer(model, messages, max_tokens=3)
    assert last.finish == "length"
    assert model.n_computed < 20, "what was read before the stop is not read again"


def steps_seen(steps: Iterator[Piece], seen: threading.Semaphore) -> Iterator[Piece]:
    for piece in steps:
        seen.release()
        yield piece


def test_a_stop_in_the_middle_of_a_long_prompt_ends_it_within_a_second(
    slow_model: OnnxModel,
) -> None:
    stop, stopped_at = RunStop(), []

    def stop_soon() -> None:
        stopped_at.append(time.monotonic())
        stop.set()

    timer = threading.Timer(0.2, stop_soon)
    steps = chat(slow_model, [user("Hello, how are you? " * 200)], GREEDY, stop=stop)
    timer.start()
    pieces = list(steps)
    assert time.monotonic() - stopped_at[0] < 1
    assert [(piece.text, piece.n_new, piece.finish) for piece in pieces] == [("", 0, "stopped")]
    assert pieces[0].n_prompt > 1200 and slow_model.n_leased == 0
    assert answer(slow_model, [user("Hello!")], max_tokens=3)[1].finish == "length"


def test_a_reply_that_nobody_reads_on_gives_its_session_back(counting: Counting) -> None:
    steps = chat(counting, [user("Hello!")], GREEDY)
    next(steps)
    assert counting.n_leased == 1
    steps.close()
    assert counting.n_leased == 0
