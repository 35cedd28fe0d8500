"""Replies known word for word are counted without generating: the count is that of generating."""

from pathlib import Path

import pytest
from conftest import NANO

from gptcore import Sampling, chat, load_model
from gptcore.nn.checkpoint import model_of
from training.data.rows import Rows
from training.data.shards.folder import prepare
from training.evaluation.recall import recall
from training.run.base import open_base

ASKED = ["Hello!", "How are you?", "What is your name?", "I am sad.", "Thank you!"]


def test_replies_that_are_generated_word_for_word_are_counted(tmp_path: Path) -> None:
    model = load_model(NANO, variant="fp32")  # the weights that `recall` reads

    def reply(messages: list) -> str:
        pieces = list(chat(model, messages, Sampling(0.0)))
        assert pieces[-1].finish == "end"
        return "".join(piece.text for piece in pieces)

    chats = []
    for asked in ASKED:
        messages = [{"role": "user", "content": asked}]
        messages.append({"role": "assistant", "content": reply(messages)})
        chats.append(messages)
    again = [*chats[0], {"role": "user", "content": "And you?"}]
    chats[0] = [*again, {"role": "assistant", "content": reply(again)}]  # two replies in one
    chats[1][-1]["content"] += " Indeed."
    chats[2][-1]["content"] = chats[3][-1]["content"] + "?"

    rows = Rows(prepare(lambda: iter(chats), tmp_path, 512, model.tokenizer), "train", 256)
    network = model_of(model.config, open_base(NANO)[0], NANO)
    assert recall(network, rows) == pytest.approx(4 / 6)
