"""Generation: how a reply ends, what is refused, and texts longer than the context."""

import time
from collections.abc import Iterator
from itertools import pairwise
from threading import Event

import numpy as np
import pytest

from export.verify.decoder import load_reference
from gptcore.checks import UserError
from gptcore.config import ModelConfig
from gptcore.engine.generate import (
    Piece,
    Reply,
    Request,
    Stop,
    chat,
    chat_request,
    complete,
    completion_request,
    generate,
)
from gptcore.engine.replies import Replies
from gptcore.engine.sampling import Likelihood, Sampling, log_softmax
from gptcore.model import OnnxModel
from gptcore.nn.torch_session import TorchSession
from gptcore.terminal import CUT
from gptcore.text.chat_template import end_of_text, messages_of, text_opening
from gptcore.text.tokenizer import Tokenizer

BYTES = Tokenizer({bytes([byte]): byte for byte in range(256)})  # a token is a byte
END, ENDOFTEXT = BYTES.special["<|end|>"], BYTES.special["<|endoftext|>"]
GREEDY = Sampling(temperature=0)
HELLO = [{"role": "user", "content": "Hello"}]


class Scripted:
    """A model and its session: it says given bytes, then `a` for ever; at None its stop is set."""

    tokenizer = BYTES

    def __init__(self, words: list[int | None], block_size: int = 1000):
        self.config = ModelConfig(vocab_size=BYTES.vocab_size, block_size=block_size)
        self.words, self.prompts, self.replies = iter(words), [], Replies()
        self.recall, self.stop, self.n_steps = self.replies.recall, Event(), 0

    def prefill(self, ids: list[int]) -> np.ndarray:
        self.prompts.append(ids)
        return self.logits()

    def step(self, token_id: int) -> np.ndarray:
        self.n_steps += 1
        return self.logits()

    def logits(self) -> np.ndarray:
        token_id = next(self.words, ord("a"))
        if token_id is None:
            self.stop.set()
        return np.eye(BYTES.vocab_size, dtype=np.float32)[token_id or 0]

    def answer(self, request: Request, stop: Stop | None = None) -> Iterator[Piece]:
        reply = Reply(request, BYTES, self.config.block_size)
        yield from generate(self, reply, stop or self.stop)
        self.replies.remember(reply)


def say(words: list[int | None], max_tokens: int = 100) -> list[Piece]:
    return list(Scripted(words).answer(Request([1, 2, 3], GREEDY, max_tokens)))


@pytest.mark.parametrize(("n_top", "max_tokens"), [(None, 5), (0, 5), (0, 0)])
def test_an_echo_is_for_the_engine_alone(n_top: int | None, max_tokens: int) -> None:
    request = Request([1, 2, 3], GREEDY, max_tokens, n_top=n_top, echo=True)
    with pytest.raises(UserError, match="echo=True"):
        next(generate(Scripted([]), Reply(request, BYTES, 100)))


@pytest.mark.parametrize(
    ("max_tokens", "block_size", "n_new", "finish"),
    [(4, 100, 4, "length"), (1, 100, 1, "length"), (100, 8, 5, "context"), (6, 8, 5, "context"),
     (5, 8, 5, "length"), (100, 4, 1, "context")],
)  # fmt: skip
def test_a_reply_ends_at_max_tokens_or_with_the_context(
    max_tokens: int, block_size: int, n_new: int, finish: str
) -> None:
    model = Scripted([*b"abcdefgh"], block_size)
    pieces = list(model.answer(Request([1, 2, 3], GREEDY, max_tokens)))
    assert [piece.token_ids for piece in pieces] == [(i,) for i in b"abcdefgh"[:n_new]]
    assert [piece.finish for piece in pieces] == [None] * (n_new - 1) + [finish]
    assert [piece.n_new for piece in pieces] == list(range(1, n_new + 1))
    assert 3 + n_new <= block_size and model.n_steps == n_new - 1


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
    reply = Reply(Request([1, 2, 3], GREEDY, 100), BYTES, 100)
    logits = np.zeros(BYTES.vocab_size, np.float32)
    for byte in "Hé".encode():
        reply.add(byte, logits)
    assert reply.take() == Piece("Hé", 3, 3, token_ids=tuple("Hé".encode()))
    assert reply.take() == Piece("", 3, 3)
    reply.add(END, logits)
    assert reply.take() == Piece("", 3, 3, "end")


def test_the_penalty_looks_at_the_reply_and_not_at_the_prompt() -> None:
    class Undecided(Scripted):
        def logits(self) -> np.ndarray:
            logits = np.zeros(BYTES.vocab_size, np.float32)
            logits[[5, 6]] = 2.0, 1.5
            return logits

    sampling = Sampling(temperature=0, repetition_penalty=2)
    pieces = Undecided([]).answer(Request([5, 5, 5], sampling, max_tokens=4))
    told = [i for piece in pieces for i in piece.token_ids]
    assert told == [5, 6, 5, 5], "2.0, 1.5, then 1.0 over 0.75"


def begin(way: str, model: Scripted, **options) -> Iterator[Piece]:
    if way == "chat":
        return chat(model, HELLO, GREEDY, **options)
    if way == "complete":
        return complete(model, "Hello", GREEDY, **options)
    return model.answer(Request([*b"Hello"], GREEDY, **options))


def test_what_a_reply_was_begun_with_is_not_counted_as_new() -> None:
    reply = Reply(Request([*b"Hello"], GREEDY, 3, begun=tuple(b"Hi")), BYTES, 1000)
    assert (reply.n_new, reply.text, reply.take().text) == (0, "Hi", "")
    for n, word in enumerate(b"you", 1):
        assert reply.finish is None
        reply.add(word, np.zeros(BYTES.vocab_size, np.float32))
        assert reply.n_new == n
    piece = reply.take()
    assert (piece.text, piece.n_prompt, piece.n_new, piece.finish) == ("you", 7, 3, "length")


@pytest.mark.parametrize("way", ["chat", "complete", "request"])
def test_a_reply_has_256_tokens_at_the_most_unless_told_otherwise(way: str) -> None:
    *pieces, last = begin(way, Scripted([]))
    assert (last.finish, last.n_new, last.n_dropped) == ("length", 256, 0)
    assert "".join(piece.text for piece in [*pieces, last]) == "a" * 256
    assert [piece.n_new for piece in begin(way, Scripted([]), max_tokens=1)] == [1]


@pytest.mark.parametrize("way", ["chat", "complete", "request"])
@pytest.mark.parametrize("max_tokens", [0, -1, True, 1.5, "5", None])
def test_a_wrong_max_tokens_is_refused_before_the_first_piece(way: str, max_tokens: object) -> None:
    with pytest.raises(UserError, match=r"max_tokens=.* must be a whole number of at least 1"):
        pieces = begin(way, Scripted([]), max_tokens=max_tokens)
        assert way == "request" and next(pieces)


@pytest.mark.parametrize("reply", ["", "Hi", "Grüße 🙂"])
def test_a_reply_is_remembered_once_as_the_tokens_it_was_generated_as(reply: str) -> None:
    model = Scripted([*reply.encode(), END])
    assert "".join(piece.text for piece in chat(model, HELLO, GREEDY)) == reply
    assert model.recall(model.prompts[0], reply) == list(reply.encode())
    assert len(model.replies.ids) == 1


def test_what_no_conversation_recalls_is_not_remembered() -> None:
    model = Scripted([*b"Hi", END])
    assert "".join(piece.text for piece in complete(model, "Hello", GREEDY)) == "Hi"
    assert not model.replies.ids


def test_a_text_goes_on_past_the_context_by_what_is_nearest() -> None:
    """Text and reply may be longer than the context; when it is full, its opening is read again,
    and its later half."""
    model = Scripted([*b"bcdefgh"], block_size=8)
    pieces = list(complete(model, "0123456789a", GREEDY, max_tokens=7))
    assert "".join(piece.text for piece in pieces) == "bcdefgh"
    assert (pieces[-1].finish, pieces[-1].n_prompt) == ("length", 8)
    read = (b"456789a", b"9ab", b"efg")
    assert model.prompts == [[ENDOFTEXT, *text] for text in read]


def test_a_conversation_may_ask_for_the_rest_of_a_reply_that_is_begun() -> None:
    model = Scripted([*b"ee you", END])
    request = chat_request(model, HELLO, GREEDY, 20, begun=b"I s")
    pieces = list(model.answer(request))
    assert "".join(piece.text for piece in pieces) == "ee you"
    [read] = model.prompts
    assert BYTES.decode(read).endswith("I s") and pieces[-1].n_prompt == len(read)


def test_a_begun_reply_goes_on_from_its_prompt_while_both_fit() -> None:
    """What is begun takes of the room for the reply; then old messages make room for one token."""
    model = Scripted([], block_size=80)
    turns = messages_of(["Hello"] * 7)
    first = chat_request(model, turns, GREEDY, 20)
    assert first.n_dropped == 0 and len(first.ids) == 51
    for n in (1, 20, 28):
        request = chat_request(model, turns, GREEDY, 20, begun=b"a" * n)
        assert (request.ids, request.n_dropped) == (first.ids, 0)
    cut = chat_request(model, turns, GREEDY, 20, begun=b"a" * 29)
    assert cut.n_dropped == 2 and len(cut.ids) + 29 < 80


def test_a_stop_text_in_what_was_begun_ends_nothing() -> None:
    """It was shown already; whoever continues it wants more."""
    request = Request([*b"Hello"], GREEDY, stops=("!",), begun=tuple(b"Hi!"))
    pieces = list(Scripted([*b" You?!"]).answer(request))
    assert "".join(piece.text for piece in pieces) == " You?" and pieces[-1].finish == "end"


@pytest.mark.parametrize("n_top", [0, 3])
def test_a_prompt_read_in_parts_is_told_as_likely_as_read_at_once(n_top: int) -> None:
    logits = np.random.default_rng(2).normal(0, 3, (9, BYTES.vocab_size)).astype(np.float32)
    request = Request([*b"Good day!"], GREEDY, 0, echo=True, n_top=n_top)

    def told(cuts: list[int]) -> tuple[Likelihood, ...]:
        reply = Reply(request, BYTES, 1000)
        for start, stop in pairwise([0, *cuts, 9]):
            reply.score_prompt(request.ids[start:stop], logits[start:stop])
        return reply.take().prompt

    whole = told([])
    assert [one.token_id for one in whole] == request.ids and whole[0].logprob is None
    log_p = log_softmax(logits[:-1])[range(8), request.ids[1:]]
    assert [one.logprob for one in whole[1:]] == pytest.approx(log_p, abs=1e-5)
    assert {len(one.top) for one in whole[1:]} == {n_top}
    assert told([1]) == told([4, 5]) == told([1, 2, 8]) == whole


def test_each_way_to_end_has_words() -> None:
    endings = {
        list(Scripted(words, size).answer(Request([1], GREEDY, most)))[-1].finish
        for words, size, most in (([END], 9, 5), ([], 9, 5), ([], 4, 5))
    }
    assert {*endings, "stopped"} == {"end", *CUT}


def test_a_short_text_is_read_whole_after_the_opening() -> None:
    model = Scripted([END], block_size=8)
    assert [piece.finish for piece in complete(model, "0123456", GREEDY)] == ["end"]
    assert model.prompts == [[ENDOFTEXT, *b"0123456"]]


# ------------------------------------------------------------------ over the exported model


@pytest.mark.parametrize("n_prompt", [1, 100, 200, 254, 255])
def test_prompt_and_reply_never_exceed_the_context(model: OnnxModel, n_prompt: int) -> None:
    block_size, ids = model.config.block_size, [97] * n_prompt
    *_, last = model.answer(Request(ids, GREEDY, block_size))
    assert last.n_prompt == n_prompt
    assert last.finish == ("end" if last.n_prompt + last.n_new < block_size else "context")
    assert last.n_prompt + last.n_new <= block_size


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
    start = time.process_time()
    pieces = list(complete(base_model, "a" * 50_000_000, GREEDY, max_tokens=2))
    assert pieces[-1].n_prompt == base_model.config.block_size
    assert time.process_time() - start < 2
