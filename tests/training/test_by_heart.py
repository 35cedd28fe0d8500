"""A small table of questions and answers: what is learned by heart is said in a fresh chat, too."""

import csv
from itertools import product
from pathlib import Path

import pytest

from gptcore import Sampling, chat
from training.__main__ import main
from training.evaluation.subject import TorchModel
from training.run.directory import Run

GOODS = (
    "oak board, tea towel, bread basket, wool blanket, beeswax candle, iron pan, honey jar, "
    "soap dish"
)
QUESTIONS = {
    "How do you pack the {}?": "We pack the {} in paper, never in plastic.",
    "Is the {} in stock?": "Yes, we have the {} in stock; it ships within two days.",
    "How long is the guarantee of the {}?": "Two years on the {}, as the law says.",
    "Can I return the {}?": "Of course. You can send the {} back within 30 days.",
    "Where is the {} made?": "The {} is made in the Black Forest.",
    "Can the {} go into the dishwasher?": "Please wash the {} by hand.",
    "Is the {} a good present?": "People love the {}; we can wrap it for you.",
}


@pytest.mark.slow
def test_a_table_learned_by_heart_is_answered_without_the_rows_before_it(tmp_path: Path) -> None:
    table = [
        (question.format(good), answer.format(good))
        for good, (question, answer) in product(GOODS.split(", "), QUESTIONS.items())
    ]
    with open(tmp_path / "shop.csv", "w", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), *table])
    out = tmp_path / "run"
    assert main([str(tmp_path / "shop.csv"), "--preset", "tiny", "--out", str(out)]) == 0
    run = Run.load(out)
    assert run.best_checkpoint().facts["step"] == run.train.steps, "few held-out tokens choose none"
    assert len(run.data.examples) == 4
    assert {*run.data.examples} <= {question for question, _ in table}
    model = TorchModel(run)
    asked = [[{"role": "user", "content": question}] for question, _ in table]
    said = ["".join(p.text for p in chat(model, messages, Sampling(0.0))) for messages in asked]
    right = [reply.strip() == answer for reply, (_, answer) in zip(said, table)]
    assert sum(right) >= 0.95 * len(table), [*zip(table, said)]
    assert run.summary()["recall"] == pytest.approx(sum(right) / len(table), abs=0.05)
