"""Which tokens of a conversation are learned: the replies, in our format and in others'."""

import numpy as np
import pytest
from chatml import CHAT, CHATML, FOREIGN, text_of

from gptcore.text.chat_format import ChatFormat
from gptcore.text.chat_template import loss_mask, messages_of, render, replies
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import document_ids, ids_and_mask, ids_and_unlearned
from training.look.samples import seen

OURS = Tokenizer({bytes([b]): b for b in range(256)})


def learned(chat: list[dict]) -> str:
    ids, mask = ids_and_mask(chat, FOREIGN)
    return text_of(ids[mask].tolist())


def test_the_replies_of_a_foreign_format_are_the_assistants_words_and_what_ends_them() -> None:
    ids, spans = replies(CHAT, FOREIGN)
    assert ids == render(CHAT, FOREIGN) == document_ids(CHAT, FOREIGN)
    said = [text_of(ids[start:stop]) for start, stop in spans]
    assert said == ["Hello!<|im_end|>", "<|im_end|>\nMe.<|im_end|>"]


def test_a_reply_is_encoded_as_it_would_be_generated() -> None:
    merges = {b"\n\n": 256, b"\n\n\n": 257}
    ranks = {bytes([b]): b for b in range(256)} | merges
    special = {"<|im_start|>": 258, "<|im_end|>": 259}
    tokenizer = Tokenizer(ranks, r"\n+|.", special=special, chat=CHATML)
    ids, [(start, stop)] = replies(messages_of(["Hi", "\nHello"]), tokenizer)
    prompt = render(messages_of(["Hi"]), tokenizer, prompt=True)
    assert ids[:start] == prompt
    assert ids[start:stop] == [*tokenizer.encode("\nHello"), 259]


def test_our_own_format_has_the_same_replies_by_its_ids() -> None:
    ids, spans = replies(CHAT, OURS)
    assert ids == render(CHAT, OURS)
    learned = np.zeros(len(ids), bool)
    learned[0] = True  # `<|endoftext|>` ends the document before
    for start, stop in spans:
        learned[start:stop] = True
    assert (loss_mask(np.array(ids), OURS) == learned).all()
    assert ids_and_unlearned(CHAT, OURS) == (ids, [])


def test_a_reply_of_weight_0_is_not_learned_in_a_foreign_format() -> None:
    silent = [{**m, "weight": 0} if m["content"] == "Hello!" else m for m in CHAT]
    assert learned(CHAT) == "Hello!<|im_end|><|im_end|>\nMe.<|im_end|>"
    assert learned(silent) == "<|im_end|>\nMe.<|im_end|>"
    assert seen(silent) == seen(CHAT).replace("«Hello!»", "Hello!")


@pytest.mark.parametrize("tokenizer", [OURS, FOREIGN])
def test_what_is_learned_is_what_a_prompt_before_each_reply_leaves(tokenizer: Tokenizer) -> None:
    weights = [None, 0, None, 1]
    chat = [message | {"weight": weight} for message, weight in zip(CHAT, weights)]
    ids, mask = ids_and_mask(chat, tokenizer)
    expected = np.zeros(len(ids), bool)
    start = len(render(CHAT[:3], tokenizer, prompt=True))
    expected[start : start + len(tokenizer.encode(CHAT[3]["content"])) + 1] = True
    assert ids.tolist() == render(CHAT, tokenizer) and (mask == expected).all()


def test_a_reply_that_nothing_ends_is_learned_alone() -> None:
    words = ChatFormat(
        text="", opening="", opening_alone="", system=("", "\n"), user=("Q:", "\n"),
        assistant=("A:", "\n"), prompt="A:",
    )  # fmt: skip
    tokenizer = Tokenizer({bytes([b]): b for b in range(256)}, special={"<|eos|>": 256}, chat=words)
    ids, spans = replies(messages_of(["a", "b", "c", "d"]), tokenizer)
    assert bytes(ids) == b"Q:a\nA:b\nQ:c\nA:d\n"
    assert [bytes(ids[start:stop]) for start, stop in spans] == [b"b", b"d"]
