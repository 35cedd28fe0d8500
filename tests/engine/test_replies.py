"""Replies of a made-up model: what it is asked to read and to keep, and how much it may say."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

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
    generate,
)
from gptcore.engine.replies import Replies
from gptcore.engine.sampling import Likelihood, Sampling, log_softmax
from gptcore.terminal import CUT
from gptcore.text.chat_template import messages_of
from gptcore.text.tokenizer import Tokenizer

BYTES = Tokenizer({bytes([byte]): byte for byte in range(256)})  # a token is a byte
END, ENDOFTEXT = BYTES.special["<|end|>"], BYTES.special["<|endoftext|>"]
GREEDY = Sampling(temperature=0)
HELLO = [{"role": "user", "content": "Hello"}]


class Scripted:
    """A model and its session: it says given bytes, then `a` for ever."""

    tokenizer = BYTES

    def __init__(self, words: list[int], block_size: int = 1000):
        self.config = ModelConfig(vocab_size=BYTES.vocab_size, block_size=block_size)
        self.words, self.prompts, self.replies = iter(words), [], Replies()
        self.recall = self.replies.recall

    def prefill(self, ids: list[int]) -> np.ndarray:
        self.prompts.append(ids)
        return self.step(ids[-1])

    def step(self, token_id: int) -> np.ndarray:
        return np.eye(BYTES.vocab_size, dtype=np.float32)[next(self.words, ord("a"))]

    def answer(self, request: Request, stop: Stop | None = None) -> Iterator[Piece]:
        reply = Reply(request, BYTES, self.config.block_size)
        yield from generate(self, reply, stop)
        self.replies.remember(reply)


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
def test_a_wrong_max_tokens_is_refused_everywhere(way: str, max_tokens: object) -> None:
    with pytest.raises(UserError, match="must be a whole number of at least 1"):
        next(begin(way, Scripted([]), max_tokens=max_tokens))


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


def test_a_conversation_never_goes_past_the_context() -> None:
    model = Scripted([], block_size=20)
    *_, last = chat(model, HELLO, GREEDY, max_tokens=100)
    assert (last.finish, last.n_prompt + last.n_new) == ("context", 20)


@pytest.mark.parametrize("ids", [[], [1] * 8, [1] * 9])
def test_a_prompt_without_room_for_a_reply_is_refused(ids: list[int]) -> None:
    said = f"has {len(ids)} tokens; the context holds 8" if ids else "is empty"
    with pytest.raises(UserError, match=f"the prompt {said}"):
        Reply(Request(ids), BYTES, 8)
    assert len(list(Scripted([], 8).answer(Request([1] * 7, GREEDY)))) == 1
