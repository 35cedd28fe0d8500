"""Generation: how a reply ends, what is refused, and texts longer than the context."""

import time
from itertools import islice
from threading import Event

import numpy as np
import pytest

from export.verify.decoder import load_reference
from gptcore.checks import UserError
from gptcore.engine.generate import (
    Piece,
    Reply,
    Request,
    chat,
    complete,
    completion_request,
    generate,
)
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel
from gptcore.nn.torch_session import TorchSession
from gptcore.text.chat_template import end_of_text, text_opening
from gptcore.text.tokenizer import Tokenizer

BYTES = Tokenizer({bytes([byte]): byte for byte in range(256)})  # a token is a byte
END, ENDOFTEXT = BYTES.special["<|end|>"], BYTES.special["<|endoftext|>"]
GREEDY = Sampling(temperature=0)


class Scripted:
    """A Session that says given tokens, whatever it reads; at None its stop is set."""

    def __init__(self, words: list[int | None]):
        self.words, self.read, self.stop = iter(words), [], Event()

    def prefill(self, ids: list[int]) -> np.ndarray:
        self.read += ids
        token_id = next(self.words)
        if token_id is None:
            self.stop.set()
        return np.eye(BYTES.vocab_size, dtype=np.float32)[token_id or 0]

    def step(self, token_id: int) -> np.ndarray:
        return self.prefill([token_id])


def reply_to(ids: list[int], sampling: Sampling, max_tokens: int, block_size: int = 100) -> Reply:
    return Reply(Request(ids, sampling, max_tokens), BYTES, block_size)


def say(words: list[int | None], max_tokens: int = 100, block_size: int = 100) -> list[Piece]:
    session = Scripted(words)
    reply = reply_to([1, 2, 3], GREEDY, max_tokens, block_size)
    return list(generate(session, reply, session.stop))


@pytest.mark.parametrize("end", [END, ENDOFTEXT])
def test_a_reply_ends_with_the_token_for_it_which_is_no_part_of_the_text(end: int) -> None:
    assert say([*b"Hi", end]) == [
        Piece("H", 3, 1, token_ids=(ord("H"),)),
        Piece("i", 3, 2, token_ids=(ord("i"),)),
        Piece("", 3, 2, "end"),
    ]


@pytest.mark.parametrize(("n_top", "max_tokens"), [(None, 5), (0, 5), (0, 0)])
def test_an_echo_is_for_the_engine_alone(n_top: int | None, max_tokens: int) -> None:
    request = Request([1, 2, 3], GREEDY, max_tokens, n_top=n_top, echo=True)
    with pytest.raises(UserError, match="echo=True"):
        next(generate(Scripted([]), Reply(request, BYTES, 100)))


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
    reply = reply_to([1, 2, 3], GREEDY, max_tokens, block_size)
    pieces = list(generate(session, reply))
    assert [piece.token_ids for piece in pieces] == [(i,) for i in b"abcdefgh"[:n_new]]
    assert reply.ids == list(b"abcdefgh"[:n_new]) and reply.finish == finish
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


def test_what_was_added_since_the_last_piece_comes_as_one() -> None:
    reply = reply_to([1, 2, 3], GREEDY, 100)
    logits = np.zeros(BYTES.vocab_size, np.float32)
    for byte in "Hé".encode():
        reply.add(byte, logits)
    assert reply.take() == Piece("Hé", 3, 3, token_ids=tuple("Hé".encode()))
    assert reply.take() == Piece("", 3, 3)
    reply.add(END, logits)
    assert reply.take() == Piece("", 3, 3, "end")


def test_closing_the_iterator_ends_the_work() -> None:
    session = Scripted([*b"abcdefgh"])
    steps = generate(session, reply_to([1, 2, 3], GREEDY, 256))
    assert [piece.token_ids for piece in islice(steps, 2)] == [(ord("a"),), (ord("b"),)]
    steps.close()
    assert session.read == [1, 2, 3, ord("a")]


def test_the_penalty_looks_at_the_reply_and_not_at_the_prompt() -> None:
    class Undecided(Scripted):
        def prefill(self, ids: list[int]) -> np.ndarray:
            logits = np.zeros(BYTES.vocab_size, np.float32)
            logits[[5, 6]] = 2.0, 1.5
            return logits

    sampling = Sampling(temperature=0, repetition_penalty=2)
    reply = reply_to([5, 5, 5], sampling, max_tokens=4)
    list(generate(Undecided([]), reply))
    assert reply.ids == [5, 6, 5, 5], "2.0, 1.5, then 1.0 over 0.75"


# ------------------------------------------------------------------ over the exported model


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.mark.parametrize("n_prompt", [1, 100, 200, 254, 255])
def test_prompt_and_reply_never_exceed_the_context(model: OnnxModel, n_prompt: int) -> None:
    block_size, ids = model.config.block_size, [97] * n_prompt
    *_, last = model.answer(Request(ids, GREEDY, block_size))
    assert last.n_prompt == n_prompt
    assert last.finish == ("end" if last.n_prompt + last.n_new < block_size else "context")
    assert last.n_prompt + last.n_new <= block_size


def test_a_prompt_that_fills_the_context_is_refused(model: OnnxModel) -> None:
    with pytest.raises(UserError, match="the prompt has 256 tokens; the context holds 256"):
        model.answer(Request([97] * 256))


@pytest.mark.parametrize("n_words", [1, 40, 70])
def test_a_text_goes_on_beyond_the_context_by_half_a_context_at_a_time(
    base_model: OnnxModel, n_words: int
) -> None:
    """Every token follows those that are read, computed without any cache."""
    block_size, tokenizer = base_model.config.block_size, base_model.tokenizer
    text = " a" * n_words
    pieces = list(complete(base_model, text, GREEDY, max_tokens=90))
    got = [token_id for piece in pieces for token_id in piece.token_ids]
    reference = TorchSession(load_reference(base_model.bundle))
    ids = [tokenizer.special["<|endoftext|>"], *tokenizer.encode(text)]
    ids = ids[:1] + ids[1:][1 - block_size :]
    for token_id in got:
        assert token_id == int(reference.prefill(ids).argmax())
        ids.append(token_id)
        if len(ids) > block_size:
            ids = ids[:1] + ids[1 - block_size // 2 :]
    assert pieces[-1].n_prompt == min(1 + n_words, block_size)
    assert len(got) == 90 or int(reference.prefill(ids).argmax()) >= 506


def test_a_text_that_is_cut_keeps_its_opening_if_it_has_one(model: OnnxModel) -> None:
    opening = text_opening(model.tokenizer)
    assert opening and model.config.block_size == 256
    ids = completion_request(model, "a" * 2000, GREEDY, 9).ids
    assert ids[: len(opening)] == opening and len(ids) == 256
    for given in ([1, 2, 3, 4], [7, 1, 2, 3, 4]):
        assert end_of_text(given, [7], 9) == given
        assert end_of_text(given, [7], 3) == ([7, 3, 4] if given[0] == 7 else [2, 3, 4])
        assert end_of_text(given, [7], 1) == [4] and end_of_text(given, [], 2) == [3, 4]


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
    with pytest.raises(UserError, match="there is no message"):
        chat(model, [])


def test_the_same_seed_gives_the_same_text_and_another_seed_another(model: OnnxModel) -> None:
    def text(seed: int) -> str:
        sampling = Sampling(temperature=1.5, top_k=0, seed=seed)
        return "".join(piece.text for piece in chat(model, [user("Hello!")], sampling, 30))

    assert text(1) == text(1) != text(2)
    assert text(-1) != text(-1)
