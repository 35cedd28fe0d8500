"""Rows of every form that people have: what is learned of each, what is left out and skipped."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from texts import CHAT, documents, told, write

from gptcore.checks import UserError
from gptcore.text.chat_template import messages_of
from training.data.corpus import read_sourced
from training.data.rows import Rows
from training.data.shards.folder import prepare
from training.formats.found import Asked
from training.formats.places import find_files

MANY = [{"prompt": f"Question {i}", "completion": f"Reply {i}", "id": i} for i in range(40)]
SYSTEM = {"role": "system", "content": "Be kind."}
SHAREGPT = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]


ROWS = {
    "messages": ({"messages": CHAT}, CHAT),
    "messages as a text": ({"messages": json.dumps(CHAT)}, CHAT),
    "OpenAI fine-tuning": (
        {
            "messages": [
                {"role": "developer", "content": "Be kind."},
                {"role": "user", "name": "ann", "content": [{"type": "text", "text": "Hi"}]},
                {"role": "assistant", "content": "Hello!", "weight": 1},
            ],
            "parallel_tool_calls": False,
        },
        [SYSTEM, *CHAT],
    ),
    "ShareGPT": ({"conversations": SHAREGPT}, CHAT),
    "messages with a system prompt, in capitals": (
        {"System": "Be kind.", "Messages": CHAT},
        [SYSTEM, *CHAT],
    ),
    "LLaMA-Factory's parts": (
        {
            "messages": [
                {"role": role, "content": [{"type": "text", "value": text}], "loss_weight": weight}
                for role, text, weight in (("user", "Hi", 0.0), ("assistant", "Hello!", 1.0))
            ]
        },
        CHAT,
    ),
    "a reply of ms-swift's that is not learned": (
        {"messages": [*CHAT[:1], {**CHAT[1], "loss": False}, *CHAT]},
        [*CHAT[:1], {**CHAT[1], "weight": 0}, *CHAT],
    ),
    "pairs in a conversation": (
        {
            "conversation": [
                {"system": "Be kind.", "input": "Hi", "output": "Hello!"},
                {"input": "Hi", "output": "Hello!"},
            ]
        },
        [SYSTEM, *CHAT, *CHAT],
    ),
    "ShareGPT with a system prompt": (
        {"system": "Be kind.", "conversations": SHAREGPT},
        [SYSTEM, *CHAT],
    ),
    "Alpaca": ({"instruction": "Hi", "input": "", "output": "Hello!"}, CHAT),
    "Alpaca with input": (
        {"instruction": "Add.", "input": "2, 3", "output": "5"},
        messages_of(["Add.\n\n2, 3", "5"]),
    ),
    "Dolly": (
        {"instruction": "When?", "context": "It began in 2000.", "response": "2000"},
        messages_of(["When?\n\nIt began in 2000.", "2000"]),
    ),
    "earlier questions and replies": (
        {"system": "Be kind.", "query": "Bye", "response": "Bye!", "history": [["Hi", "Hello!"]]},
        [SYSTEM, *messages_of(["Hi", "Hello!", "Bye", "Bye!"])],
    ),
    "Guanaco's text": (
        {"text": "### Human: Hi### Assistant: Hello!### Human: Bye"},
        messages_of(["Hi", "Hello!", "Bye"]),
    ),
    "Alpaca's text": (
        {
            "text": "Below is an instruction that describes a task. Write a response.\n\n"
            "### Instruction:\nAdd.\n\n### Input:\n2, 3\n\n### Response:\n5"
        },
        messages_of(["Add.\n\n2, 3", "5"]),
    ),
    "Llama's text": (
        {"text": "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Hello! </s>"},
        [SYSTEM, *CHAT],
    ),
    "Llama 3's text": (
        {
            "text": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind."
            "<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
        },
        [SYSTEM, *CHAT],
    ),
    "Gemma's text": (
        {
            "text": "<bos><start_of_turn>user\nHi<end_of_turn>\n"
            "<start_of_turn>model\nHello!<end_of_turn>"
        },
        CHAT,
    ),
    "Zephyr's text": (
        {"text": "<|system|>\nBe kind.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello!</s>"},
        [SYSTEM, *CHAT],
    ),
    "ChatML's text": (
        {
            "text": "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nHello!<|im_end|>\n"
        },
        [SYSTEM, *CHAT],
    ),
    "a preferred text with marks": (
        {"chosen": "\n\nHuman: Hi\n\nAssistant: Hello!", "rejected": "\n\nHuman: Hi"},
        CHAT,
    ),
    "a prompt with marks": (
        {"prompt": "\n\nHuman: Hi\n\nAssistant:", "chosen": " Hello!", "rejected": " No."},
        CHAT,
    ),
    "a text about marks": (
        {"text": "Write ### Human: and ### Assistant: there."},
        "Write ### Human: and ### Assistant: there.",
    ),
    "OpenOrca": (
        {"system_prompt": "Be kind.", "question": "Hi", "response": "Hello!"},
        [SYSTEM, *CHAT],
    ),
    "preferred replies": ({"question": "Hi", "chosen": "Hello!", "rejected": "No."}, CHAT),
    "preferred messages": ({"chosen": CHAT, "rejected": [CHAT[0], CHAT[0]]}, CHAT),
    "UltraFeedback": ({"prompt": "Hi", "chosen": CHAT, "rejected": CHAT[:1]}, CHAT),
    "a preferred message beside the conversation": (
        {
            "conversations": SHAREGPT[:1],
            "chosen": SHAREGPT[1],
            "rejected": {"from": "gpt", "value": "No."},
        },
        CHAT,
    ),
    "preferred messages beside the conversation": (
        {"messages": CHAT[:1], "chosen": CHAT[1:], "rejected": []},
        CHAT,
    ),
    "a preferred text beside the conversation": ({"messages": CHAT[:1], "chosen": "Hello!"}, CHAT),
    "the preferred whole beside its beginning": ({"messages": CHAT[:1], "chosen": CHAT}, CHAT),
    "input and preferred reply": ({"input": "Hi", "chosen": "Hello!", "rejected": "No."}, CHAT),
    "a system prompt, and preferred messages with it": (
        {"system": "Be kind.", "prompt": "Hi", "chosen": [SYSTEM, *CHAT]},
        [SYSTEM, *CHAT],
    ),
    "a preferred message": ({"prompt": "Hi", "chosen": CHAT[1]}, CHAT),
    "a text that is chosen": ({"text": "Once upon a time.", "chosen": True}, "Once upon a time."),
    "a blank context": ({"question": "Hi", "context": " ", "answer": "Hello!"}, CHAT),
    "OpenAssistant's tree": (
        {
            "message_tree_id": "1",
            "prompt": {
                "text": "Hi",
                "role": "prompter",
                "replies": [
                    {"text": "Maybe.", "role": "assistant", "rank": None, "replies": []},
                    {"text": "No.", "role": "assistant", "rank": 1, "replies": []},
                    {"text": "Hello!", "role": "assistant", "rank": 0, "replies": []},
                ],
            },
        },
        CHAT,
    ),
    "prompt and completion": ({"prompt": "Hi", "completion": "Hello!"}, CHAT),
    "TRL's messages": ({"prompt": CHAT[:1], "completion": CHAT[1:]}, CHAT),
    "question and answer": ({"Question": "Hi", "Answer": "Hello!", "id": 3}, CHAT),
    "text": ({"text": "Once upon a time."}, "Once upon a time."),
}


@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("shape", ["lines", "array", "indented array", "object"])
def test_rows_of_every_form_are_read_from_json_of_every_shape(
    tmp_path: Path, form: str, shape: str
) -> None:
    row, document = ROWS[form]
    content = {
        "lines": f"{json.dumps(row)}\n" * 2,
        "array": json.dumps([row, row]),
        "indented array": json.dumps([row, row], indent=2),
        "object": json.dumps({"version": 1, "data": [row, row]}, indent=1),
    }[shape]
    assert documents(write(tmp_path / "data", content)) == [document] * 2


def test_where_a_row_comes_from_is_no_text_of_it(tmp_path: Path) -> None:
    rows = [{"text": "Hi", "source": "made"}, {"source": "Hi", "target": "Hello!"}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert list(read_sourced(find_files([path]))) == [("Hi", "made"), (CHAT, "a.jsonl")]
    columns = Asked(columns=("source",))
    assert list(read_sourced(find_files([path]), columns))[1] == ("Hi", "a.jsonl")


def test_keys_that_are_not_read_are_told(tmp_path: Path) -> None:
    row = {"text": "A headline", "body": "The article.", "source": "made", "id": 7}
    said = told(write(tmp_path / "a.jsonl", json.dumps(row)))
    assert "a.jsonl: JSON lines (not read: 'body' and 'id'), 1 text" in said
    said = told(write(tmp_path / "a.json", json.dumps([row, row])), columns=("body",))
    assert "a.json: JSON (not read: 'text' and 'id'), 2 texts" in said


def test_a_named_column_of_a_templates_texts_is_of_conversations(tmp_path: Path) -> None:
    row = {"said": "<s>[INST] Hi [/INST] Hello! </s>"}
    assert documents(write(tmp_path / "a.jsonl", json.dumps(row)), columns=("said",)) == [CHAT]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_the_long_text_of_a_row_is_cut_as_a_file_of_text_is(tmp_path: Path, name: str) -> None:
    text = "".join(f"Sentence {i} of many. " for i in range(9999))
    rows = {
        "a.jsonl": json.dumps({"text": text})
        + "\n"
        + json.dumps({"text": "Short.", "source": "s"}),
        "a.csv": f"words\n{text}\nShort.\n",
    }
    path = write(tmp_path / name, rows[name])
    *parts, short = documents(path)
    plain = documents(write(tmp_path / "a.txt", text), size=10)
    assert short == "Short." and len(parts) > 50 and "".join(parts) == "".join(plain) == text
    assert f"2 texts cut into {len(parts) + 1}, " in told(path)


def test_a_reply_of_weight_0_is_read_and_marked(tmp_path: Path) -> None:
    secret = {"role": "assistant", "content": "Secret, long enough to go on.", "weight": 0}
    row = {"messages": [CHAT[0], secret, *CHAT]}
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in [row, *MANY]))
    assert documents(path)[0] == row["messages"]
    shards = prepare(lambda: documents(path), tmp_path, vocab_size=262)
    rows = Rows(shards, "train", 16)
    _, targets = rows.batch(range(len(rows)), fresh_only=True)
    text = shards.tokenizer.decode([token for token in targets.flatten().tolist() if token >= 0])
    assert "Secret" not in text and text.count("Hello!") == 1 and text.count("Reply") == 40


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("context", ["One."], "a list, not a text"),
        ("input", {"a": 1}, "an object, not a text"),
        ("history", [["One."]], "a list, not pairs"),
    ],
)
def test_what_stands_beside_a_question_and_is_no_text_is_left_out_and_counted(
    tmp_path: Path, name: str, value: Any, what: str
) -> None:
    row = {"instruction": "Hi", name: value, "output": "Hello!"}
    path = write(tmp_path / "a.jsonl", row)
    assert documents(path) == [CHAT]
    assert f"skipped 1: its '{name}' is {what} (first: line 1)" in told(path)


def test_a_chosen_reply_in_a_table_is_a_text_or_messages(tmp_path: Path) -> None:
    replies = ["[laughs] Hi there", "[{ is a bracket", json.dumps(CHAT)]
    with (tmp_path / "a.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["input", "chosen"], *(["Hi", reply] for reply in replies)])
    found = documents(tmp_path / "a.csv")
    assert [talk[1]["content"] for talk in found] == [*replies[:2], "Hello!"]


def test_a_reply_of_a_table_that_is_marked_as_a_bad_one_is_skipped(tmp_path: Path) -> None:
    table = "prompt,completion,label\nHi,Hello!,True\nBye,Get lost!,False\n"
    path = write(tmp_path / "kto.csv", table)
    assert documents(path) == [CHAT]
    assert "skipped 1: its 'label' is false" in told(path)


def test_messages_of_tools_are_left_out_and_counted(tmp_path: Path) -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    row = {"messages": [CHAT[0], calls, {"role": "tool", "content": "4"}, CHAT[1]]}
    path = write(tmp_path / "a.jsonl", row)
    assert documents(path) == [CHAT]
    assert "skipped 1: a message that only calls a tool (first: line 1)" in told(path)
    assert "skipped 1: a message of the role 'tool' (first: line 1)" in told(path)


SKIPPED = {
    "not JSON (Expecting property name": "{'text': 'single quotes'}",
    "not JSON (Invalid control character": '{"text": "never clo',
    "not JSON (Exceeds the limit (4300 digits)": f'{{"text": {"1" * 5000}}}',
    "nested too deeply": f'{{"text": {"[" * 100_000}}}',
    "a number, not an object with keys": "42",
    "a list, not an object with keys": '["text"]',
    "a text, not an object with keys": '"messages"',
    "null, not an object with keys": "null",
    "an empty object": "{}",
    "no known key: its keys are 'title'": '{"title": "one"}',
    "the key 'text' twice": '{"text": "one", "text": "two"}',
    "its 'text' is a number, not a text": '{"text": 42}',
    "a character is only half a surrogate pair": '{"text": "\\ud83c"}',
    "its messages are a text, not a list": '{"messages": "Hello"}',
    "no reply of an assistant": '{"messages": [{"role": "user", "content": "Hi"}]}',
    "message 1 has the unknown role []": '{"messages": [{"role": [], "content": "Hello"}]}',
    "message 2 has the unknown role 'x'": json.dumps({"messages": [CHAT[0], {"role": "x"}]}),
    "content of message 1 is null, not a text": '{"messages": [{"role": "user"}]}',
    "message 3 is a system message": json.dumps({"messages": [*CHAT, SYSTEM]}),
    "a NUL character": '{"messages": [{"role": "user", "content": "a\\u0000"}]}',
    "one message of a tree": '{"parent_id": "1", "text": "Hi", "role": "assistant"}',
    "an example of a bad reply": '{"prompt": "Hi", "completion": "No!", "label": false}',
    "about its 'images', which a text model cannot read": json.dumps(
        {"messages": CHAT, "images": ["ann.jpg"]}
    ),
}


@pytest.mark.parametrize("reason", SKIPPED)
def test_a_row_that_teaches_nothing_is_skipped_with_its_reason(tmp_path: Path, reason: str) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"text": "fine"}}\n\n{SKIPPED[reason]}\n')
    assert documents(path) == ["fine"]
    held, skip = told(path).splitlines()
    assert held.endswith("a.jsonl: JSON lines, 1 text, 4 bytes")
    assert skip.startswith("  skipped 1: ") and reason in skip and skip.endswith("(first: line 3)")
    with pytest.raises(UserError, match=r"no document was found: .*b\.jsonl, line 1: ") as refusal:
        documents(write(tmp_path / "b.jsonl", SKIPPED[reason]))
    assert "\n" not in str(refusal.value)


def test_a_value_with_a_key_twice_costs_no_other_value(tmp_path: Path) -> None:
    twice = '[{"text": "one"}, {"text": "a", "n": {"k": 1, "k": 2}}, {"text": "three"}]'
    path = write(tmp_path / "a.json", twice)
    assert documents(path) == ["one", "three"]
    assert "skipped 1: it has the key 'k' twice, and one would be lost (first: value 2)" in told(
        path
    )


def test_it_is_said_that_the_rest_of_a_file_is_not_read(tmp_path: Path) -> None:
    rows = "Hi,Hello!\n" * 200
    write(tmp_path / "a.csv", f'question,answer\n{rows}Bye,"Good" bye\n{rows}')
    assert " bytes\n  skipped 1: line 202: its quotes" in told(tmp_path)
    assert "and the cell in quotes (the rest is not read)" in told(tmp_path)


def test_a_key_that_a_row_lacks_is_not_called_null(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"question": "Hi"}\n{"Question": "Hi", "Answer": null}\n')
    assert documents(path, columns=("Question",)) == ["Hi"]
    said = told(path, columns=("Question",))
    assert "skipped 1: it has no key 'Question': its keys are 'question' (first: line 1)" in said
