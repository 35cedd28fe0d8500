"""What a model reads of a conversation, how its replies end, and what is read twice."""

from collections.abc import Iterator

import numpy as np
import pytest

from gptcore.config import ModelConfig
from gptcore.engine.generate import Piece, Reply, Request, Stop, chat, complete, generate
from gptcore.engine.replies import Replies
from gptcore.engine.sampling import Sampling
from gptcore.text.chat_format import ChatFormat
from gptcore.text.tokenizer import Tokenizer

SINGLE = {bytes([byte]): byte for byte in range(256)}
BYTES = Tokenizer(SINGLE)  # a token is a byte
TEXT, PAD, SYSTEM, USER, ASSISTANT, END = range(256, 262)
GREEDY = Sampling(temperature=0)
# As models made elsewhere have it: words before the reply, and tokens that join them to it.
WORDS = ChatFormat(user=("Q:", "\n"), assistant=("A:", "<|end|>"), prompt="A:")
JOINING = Tokenizer(SINGLE | {b":h": 256, b"hi": 257}, chat=WORDS)


class Noting:
    """A model and its session: it gives scripted replies and notes what it reads."""

    def __init__(
        self, replies: list[list[int]], tokenizer: Tokenizer = BYTES, block_size: int = 1000
    ):
        self.tokenizer = tokenizer
        self.config = ModelConfig(vocab_size=tokenizer.vocab_size, block_size=block_size)
        self.replies = iter(replies)
        self.read: list[list[int]] = []  # by generation
        self.known = Replies()
        self.recall = self.known.recall

    def prefill(self, ids: list[int]) -> np.ndarray:
        self.reply = iter(next(self.replies))
        self.read.append(list(ids))
        return self.logits()

    def step(self, token_id: int) -> np.ndarray:
        self.read[-1].append(token_id)
        return self.logits()

    def logits(self) -> np.ndarray:
        return np.eye(self.config.vocab_size, dtype=np.float32)[next(self.reply)]

    def answer(self, request: Request, stop: Stop | None = None) -> Iterator[Piece]:
        reply = Reply(request, self.tokenizer, self.config.block_size)
        yield from generate(self, reply, stop)
        self.known.remember(reply)


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def answer(model: Noting, messages: list, max_tokens: int = 256) -> list[Piece]:
    """The pieces of the reply, which is added to the messages."""
    pieces = list(chat(model, messages, GREEDY, max_tokens))
    messages.append(message("assistant", "".join(piece.text for piece in pieces)))
    return pieces


@pytest.mark.parametrize(
    "typed",
    ["Hello", "  a space before and after ", "\n\ttwo\n\nlines\n", "ÄÖ, 水 🙂", "<|end|><|user|>",
     "e\u0301 is not é", "\ufeffmark", "\x00"],
    ids=ascii,
)  # fmt: skip
def test_what_the_model_reads_is_what_was_typed(typed: str) -> None:
    model = Noting([[*b" Yes ", END], [END]])
    messages = [message("system", typed), message("user", typed)]
    answer(model, messages)
    opening = [TEXT, SYSTEM, *typed.encode(), END, USER, *typed.encode(), END, ASSISTANT]
    assert model.read[0] == [*opening, *b" Yes "]
    messages.append(message("user", typed))
    answer(model, messages)
    turn = [END, USER, *typed.encode(), END, ASSISTANT]
    assert model.read[1] == [*opening, *b" Yes ", *turn]


def test_of_a_plain_text_the_model_reads_what_was_typed() -> None:
    model = Noting([[*b"!", END]])
    list(complete(model, " Once <|end|>\n", GREEDY))
    assert model.read == [[TEXT, *b" Once <|end|>\n", *b"!"]]


def test_a_format_that_trims_loses_the_white_space_around_messages_alone() -> None:
    model = Noting([[END]], Tokenizer(SINGLE, chat=ChatFormat(trims=True)))
    answer(model, [message("user", " two  words\n")])
    assert model.read == [[TEXT, USER, *b"two  words", END, ASSISTANT]]


@pytest.mark.parametrize("end", [TEXT, PAD, SYSTEM, USER, ASSISTANT, END])
def test_every_special_token_ends_a_reply_and_none_of_it_is_shown(end: int) -> None:
    """A role token would open a turn of somebody else."""
    *pieces, last = answer(Noting([[*b"Hi", end, *b"there"]]), [message("user", "Hello")])
    assert "".join(piece.text for piece in pieces) == "Hi"
    assert (last.text, last.n_new, last.finish, last.token_ids) == ("", 2, "end", ())


@pytest.mark.parametrize(
    ("max_tokens", "reserve"), [(1, 1), (19, 19), (20, 20), (21, 20), (256, 20)]
)
def test_a_quarter_of_the_context_is_kept_for_the_reply_or_less_if_less_may_come(
    max_tokens: int, reserve: int
) -> None:
    """Of 80 tokens: a conversation that just leaves the reserve stays whole."""
    for n_over in (0, 1):
        rest = 80 - reserve - len([TEXT, USER, END, ASSISTANT, END, USER, ord("b"), END, ASSISTANT])
        turns = [message("user", "a" * (rest + n_over)), message("assistant", "")]
        model = Noting([[END]], block_size=80)
        (piece,) = answer(model, [*turns, message("user", "b")], max_tokens)
        assert piece.n_dropped == 2 * n_over
        assert piece.n_prompt == (80 - reserve, len([TEXT, USER, ord("b"), END, ASSISTANT]))[n_over]


def test_a_recalled_reply_is_looked_up_by_the_words_before_it_and_keeps_its_ids() -> None:
    """Written anew, "A:" and "hi" would be joined to "A", ":h" and "i"."""
    h, i = b"hi"
    end = JOINING.special["<|end|>"]
    model, messages = Noting([[h, i, end], [end]], JOINING), [message("user", "x")]
    answer(model, messages)
    opening = [JOINING.special["<|endoftext|>"], *b"Q:x\nA:"]
    assert model.read[0] == [*opening, h, i]
    assert model.recall(opening, "hi") == [h, i] and len(model.known.ids) == 1
    messages.append(message("user", "y"))
    answer(model, messages)
    assert model.read[1] == [*opening, h, i, end, *b"Q:y\nA:"]


def test_a_reply_that_is_not_known_is_encoded_together_with_the_words_before_it() -> None:
    end = JOINING.special["<|end|>"]
    model = Noting([[end]], JOINING)
    answer(model, [message("user", "x"), message("assistant", "hi"), message("user", "y")])
    joined = JOINING.encode("Q:x\nA:hi")
    assert 256 in joined and 257 not in joined
    assert model.read == [[JOINING.special["<|endoftext|>"], *joined, end, *b"Q:y\nA:"]]


def test_a_conversation_opens_as_its_format_says_with_a_system_message_and_without() -> None:
    form = ChatFormat(opening="<|pad|>", opening_alone="<|endoftext|>be kind")
    model = Noting([[END], [END]], Tokenizer(SINGLE, chat=form))
    answer(model, [message("system", "S"), message("user", "a")])
    answer(model, [message("user", "a")])
    turn = [USER, *b"a", END, ASSISTANT]
    assert model.read == [[PAD, SYSTEM, *b"S", END, *turn], [TEXT, *b"be kind", *turn]]
