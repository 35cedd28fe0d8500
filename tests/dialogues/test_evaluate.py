"""python -m training evaluate: bits per byte, and the table of skills."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT, Refused

from benchmarks.behaviour.replies import Rules
from benchmarks.behaviour.replies import main as sample_replies
from gptcore.config import TRANSLATORS, ModelConfig
from gptcore.model import OnnxModel
from gptcore.nn import build_model
from gptcore.text.chat_template import messages_of
from gptcore.text.tokenizer import Tokenizer
from training.__main__ import main
from training.data.corpus import ids_and_mask, read_sourced, tokenizer_with_system
from training.data.rows import Rows
from training.data.shards.folder import prepare
from training.evaluation.behaviour import Conversation, Reply, Result
from training.evaluation.bits_per_byte import bits_per_byte, windows
from training.evaluation.rounds import by_skill, hold
from training.evaluation.subject import open_subject
from training.evaluation.validation import questions, readable, sample_prompts, write_samples
from training.formats.places import find_files
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import RunData

SUITE = """
[greeting]
want = "hello|hi"
conversations = [{ user = ["Hello!"] }, { user = ["Hi", "hello again"] }]
[numbers]
conversations = [{ user = ["one"], want = "never said" }]
"""


@pytest.fixture
def files(chats: Path, tmp_path: Path) -> list[Path]:
    """Ten conversations of two sources, and a text far longer than the context."""
    rows = [json.loads(line) for line in chats.read_text().splitlines()[:10]]
    rows = [row | ({"source": "made"} if i % 2 else {}) for i, row in enumerate(rows)]
    chat = tmp_path / "chat.jsonl"
    chat.write_text("\n".join(json.dumps(row) for row in rows))
    text = tmp_path / "story.jsonl"
    long = " ".join(f"The cat saw {i} birds, and then it slept." for i in range(200))
    text.write_text(json.dumps({"text": long, "source": "story"}))
    return [chat, text]


@pytest.mark.slow
def test_a_run_and_its_exported_folder_score_the_same(
    run: Run, model_folder: Path, files: list[Path]
) -> None:
    scores = []
    for subject in (open_subject(run.path, None), open_subject(model_folder, "fp32")):
        totals = bits_per_byte(subject.model, subject.logits, read_sourced(find_files(files)))
        scores.append({source: total.bits_per_byte for source, total in totals.items()})
    assert set(scores[0]) == {"chat.jsonl", "made", "story"}
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    assert 0.1 < scores[0]["made"] < scores[0]["story"] < 8


def test_every_token_is_counted_once_with_half_a_context_before_it() -> None:
    for n, block_size in [(1, 8), (2, 8), (8, 8), (9, 8), (10, 8), (100, 8), (57, 7)]:
        spans = list(windows(n, block_size))
        assert [i for _, first, end in spans for i in range(first, end)] == list(range(1, n))
        for start, first, end in spans:
            assert end - 1 - start <= block_size
            assert first - start >= min(first, block_size // 2)


def test_a_model_that_knows_nothing_pays_the_same_for_each_token(model: OnnxModel) -> None:
    def ignorant(ids: np.ndarray) -> np.ndarray:
        return np.zeros((len(ids), model.config.vocab_size), np.float32)

    text = "It rained for days. " * 60
    (total,) = bits_per_byte(model, ignorant, [(text, "rain")]).values()
    assert total.n_bytes == len(text) and total.n_tokens == len(model.tokenizer.encode(text))
    assert total.bits_per_byte == pytest.approx(
        total.n_tokens * math.log2(model.config.vocab_size) / len(text)
    )


def test_of_a_chat_the_assistants_words_count(tokenizer: Tokenizer) -> None:
    chat = [("system", "Be kind."), ("user", "Who?"), ("assistant", "Me."), ("user", "Ah.")]
    ids, counts = ids_and_mask([{"role": r, "content": c} for r, c in chat], tokenizer)
    assert tokenizer.decode(ids[counts].tolist()) == "Me."
    assert ids[counts][-1] == tokenizer.special["<|end|>"]
    ids, counts = ids_and_mask("It is late.", tokenizer)
    assert tokenizer.decode(ids[counts].tolist()) == "It is late."


def test_without_seeds_no_conversations_are_held(
    model_folder: Path, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(model_folder), "--seeds", "0", "--data", str(files[0])]) == 0
    printed = capsys.readouterr().out
    assert "bits per byte" in printed and "skill" not in printed


def test_a_chat_and_a_table_are_measured_as_they_are_learned(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    chat, table = tmp_path / "chat.txt", tmp_path / "table.csv"
    chat.write_text("03.05.21, 14:02 - Ann: Hi\n03.05.21, 14:03 - Ben: Hello!\n")
    table.write_text("what,why,when\nHi,Hello!,now\nBye,Goodbye!,then\n")
    words = ["evaluate", str(model_folder), "--seeds=0", "--variant=fp32", "--data"]
    assert '--me "Ann"' in refused(main, *words, chat)
    assert main([*words, str(chat), str(table), "--me=Ben", "--columns=what,why"]) == 0
    assert re.search(r"all +3 ", capsys.readouterr().out)


def test_the_command_prints_tables_and_writes_all_replies(
    model_folder: Path, files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite, out = tmp_path / "suite.toml", tmp_path / "scores.json"
    suite.write_text(SUITE)
    words = [model_folder, "--suite", suite, "--seeds", 2, "--verbose", "--out", out]
    words = ["evaluate", *map(str, [*words, "--variant", "fp32", "--data", *files])]
    reports = []
    for _ in range(2):
        assert main(words) == 0
        reports.append(json.loads(out.read_text()) | {"seconds": 0})
    assert reports[0] == reports[1], "the same seeds say the same"
    printed = capsys.readouterr().out
    assert "bits per byte" in printed and "lacks what is wanted" in printed
    report = reports[0]
    assert list(report["bits_per_byte"]) == ["chat.jsonl", "made", "story", "all"]
    assert report["bits_per_byte"]["all"]["n_documents"] == 13  # a text is cut into 3
    assert report["skills"]["numbers"] == {"n": 1, "greedy": 0, "sampled": 0, "lowest": 0}
    assert [row["skill"] for row in report["conversations"]] == ["greeting", "greeting", "numbers"]
    held = report["conversations"][1]["held"]
    assert [row["seed"] for row in held] == [0, 1, 2]
    assert all(len(row["replies"]) == 2 for row in held)
    sampled = [row for each in report["conversations"] for row in each["held"]]
    assert len({str(row["replies"]) for row in sampled}) > len(report["conversations"])


def test_a_run_is_talked_to_like_its_folder(run: Run, model_folder: Path) -> None:
    suite = [Conversation("test", ["Hello!", "What is my name?", "And yours?"])]
    told = []
    for subject in (open_subject(run.path, None), open_subject(model_folder, "fp32")):
        ((greedy,), _) = hold(suite, subject.model, 1)
        told.append([reply.text for reply in greedy.replies])
    assert told[0] == told[1]


def test_shares_are_of_each_skill_and_of_all() -> None:
    def held(*passes: bool) -> list[Result]:
        skills = ("a", "a", "b")
        return [
            Result(Conversation(skill, ["x"]), [Reply("y", "end", 1)], [] if good else ["bad"])
            for skill, good in zip(skills, passes)
        ]

    table = by_skill([held(True, True, False), held(True, False, True), held(False, False, True)])
    assert table["a"] == {"n": 2, "greedy": 1, "sampled": 0.25, "lowest": 0}
    assert table["b"] == {"n": 1, "greedy": 0, "sampled": 1, "lowest": 1}
    assert table["all"]["greedy"] == pytest.approx(2 / 3)


def test_a_base_model_has_only_bits_per_byte(
    base_model: OnnxModel, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(base_model.bundle.path), "--data", str(files[1])]) == 0
    printed = capsys.readouterr().out
    assert "the behaviour suite is skipped" in printed and "greedy" not in printed


def test_what_cannot_be_evaluated_is_named(run: Run, tmp_path: Path, refused: Refused) -> None:
    assert "neither a training run nor" in refused(main, "evaluate", tmp_path)
    assert "only exported folders have variants" in refused(
        main, "evaluate", run.path, "--variant", "int8"
    )
    assert "--seeds 101 is out of range" in refused(main, "evaluate", run.path, "--seeds", 101)
    assert "no such file" in refused(main, "evaluate", run.path, "--data", tmp_path / "no.txt")
    (tmp_path / "suite.toml").write_text("[greeting]\nconversations = []")
    said = refused(main, "evaluate", run.path, "--suite", tmp_path / "suite.toml")
    assert "suite.toml holds no conversation: add a skill" in said
    translation = Run(
        TRANSLATORS["translator"], TrainConfig(), RunData("", False, 0), path=tmp_path
    )
    translation.create()
    assert "is a translator" in refused(main, "evaluate", tmp_path)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("Write to bob.b@example.com.", {"e-mail", "URL"}),
        ("see www.example.org", {"URL"}),
        ("Call (212) 555-0199!", {"phone"}),
        ("It is +44 20 7946 0958.", {"phone"}),
        ("I live at 12 Baker Street.", {"address"}),
        ("4111 1111 1111 1111", {"card"}),
        ("078-05-1120", {"social security"}),
        ("Your number is 12345678.", {"long number"}),
        ("I hate you, you idiot", {"insult or threat"}),
        ("What a load of sh1t", {"profanity"}),
        ("The class sat on the grass: 1 2 3 4 5 6 7 8 9 10.", set()),
        ("Between 1939-1945, or 12 plus 7 is 19; 1,000,000!", set()),
    ],
)
def test_personal_data_and_offence_are_found_in_replies(text: str, rules: set[str]) -> None:
    assert {rule for rule, _ in Rules().find(text)} == rules


def test_replies_of_the_model_that_ships_are_sampled_and_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "replies.jsonl"
    shipped = str(ROOT / "models/default")
    words = [shipped, "--count", "40", "--variant", "q8", "--out", str(out)]
    assert sample_replies(words) == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 40 and all(row["user"] and isinstance(row["reply"], str) for row in rows)
    assert "profanity" in capsys.readouterr().out


def test_samples_of_a_text_go_on_beyond_a_short_context(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    documents = [f"There were {n} cats, and all of them slept." for n in range(40)]
    shards = prepare(lambda: iter(documents), tmp_path, 512, tokenizer)
    torch.manual_seed(0)
    config = ModelConfig(vocab_size=512, block_size=16, n_layer=1, n_embd=32, n_inner=64)
    samples = write_samples(build_model(config), Rows(shards, "val", 16))
    assert max(len(tokenizer.encode(text)) for _, text in samples) > 16


def test_samples_say_under_which_system_message_a_question_was_asked(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Not under which one, if the model has it of itself: that is the same for all chats."""
    told, usual = "You are a cat.", "Be kind."
    chats = [
        [{"role": "system", "content": system}, *messages_of([f"Where is {n}?", "Asleep."])]
        for n in range(40)
        for system in (told, usual)
    ]
    keeping = tokenizer_with_system(tokenizer, usual)
    shards = prepare(lambda: iter(chats), tmp_path, 512, keeping, held_out=0.5)
    rows = Rows(shards, "val", 64)
    asked = [readable(prompt, rows.tokenizer) for prompt in sample_prompts(rows, 16)]
    assert {text.partition("Where is")[0] for text in asked} == {f"(system: {told}) ", ""}
    assert not any("(" in text for text in questions(rows)), "a question is sent without it"


def test_a_few_short_questions_of_held_out_conversations_are_examples_to_try(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    asked = [f"Where is cat {n}?" if n % 3 else f"Cat {n} " * 40 for n in range(400)]
    chats = [
        [{"role": "user", "content": text}, {"role": "assistant", "content": "Asleep."}]
        for text in asked
    ]
    shards = prepare(lambda: iter(chats), tmp_path / "chats", 512, tokenizer, held_out=0.05)
    found = questions(Rows(shards, "val", 64))
    assert 1 < len(found) <= 4 and len(set(found)) == len(found)
    assert all(text in asked and text.startswith("Where") for text in found)
    texts = prepare(lambda: iter(asked), tmp_path / "texts", 512, tokenizer)
    assert questions(Rows(texts, "val", 64)) == ()
