"""A blind reading: are the replies of some models good, for a reader who does not know whose?

    python benchmarks/behaviour/blind.py ask default=models/default smollm2=smollm2.gguf --out READ
    python benchmarks/behaviour/blind.py count READ

`ask` holds the conversations of blind/conversations.json with each model, greedily: a folder's by
our engine, a GGUF file's by llama.cpp's server with --system as its system prompt. READ gets
`replies.jsonl`, and `sheet.jsonl`, which is in a random order and names no model. A reader writes
`grades-WHO.jsonl`, for each line of the sheet {"id": ..., "good": true or false}. `count` prints
the share of good ones by model, with Wilson's interval of 95 % (JASA 22, 1927), and by skill.
"""

import argparse
import hashlib
import json
import math
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import requests
from tqdm import tqdm

from benchmarks.crowds.servers import llama
from gptcore.engine.sampling import Sampling
from gptcore.model import load_model
from gptcore.text.chat_template import Message
from training.evaluation.behaviour import (
    MAX_TOKENS,
    Answer,
    Conversation,
    Reply,
    answers_of,
    converse,
)

CONVERSATIONS = Path(__file__).parent / "blind" / "conversations.json"
SYSTEM = (
    "You are a small, friendly chat program. Answer in one to three short, simple sentences. "
    "Use what the user told you before. If you cannot know or do something, say so. For medicine, "
    "law and money, send the user to somebody who knows; in an emergency, to the local emergency "
    "number at once. Speak English only. Decline what could harm somebody, kindly."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    asking = commands.add_parser("ask", help="hold the conversations")
    asking.add_argument("models", nargs="+", metavar="NAME=FOLDER|FILE.gguf")
    asking.add_argument("--out", type=Path, required=True)
    asking.add_argument("--system", default=SYSTEM, help="prompt of the GGUF files (see SYSTEM)")
    asking.add_argument("--threads", type=int, default=2, help="of llama.cpp")
    asking.add_argument("--variant", help="of the folders (the fastest)")
    counting = commands.add_parser("count", help="count the grades")
    counting.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "count":
        count(options.folder)
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        ask(options.models, options.out, options.threads, options.variant, options.system)


def ask(
    models: list[str],
    out: Path,
    threads: int,
    variant: str | None = None,
    prompt: str = SYSTEM,
) -> None:
    """Hold the conversations with each model, unless they were held; write replies and sheet."""
    talks = json.loads(CONVERSATIONS.read_text(encoding="utf-8"))
    path = out / "replies.jsonl"
    rows = read(path) if path.exists() else []
    for named in models:
        name, _, model = named.partition("=")
        if not (model and Path(model).exists()):
            sys.exit(f"{named}: give NAME=FOLDER or NAME=FILE.gguf, of a model that is there")
        if any(row["model"] == name for row in rows):
            continue
        with open_answer(Path(model), threads, variant) as answer:
            for i, talk in enumerate(tqdm(talks, name, disable=None)):
                system = prompt if model.endswith(".gguf") else ""
                text = "\n".join(filter(None, (system, talk.get("system"))))
                result = converse(Conversation(talk["skill"], talk["user"], text), answer)
                replies = [reply.text for reply in result.replies]
                key = hashlib.sha256(f"{name} {i}".encode()).hexdigest()[:8]  # it tells no model
                rows.append({"id": key, "talk": i, "model": name, "replies": replies})
        write(path, rows)
    shown = [
        {key: talks[row["talk"]].get(key, "") for key in ("skill", "system", "user", "wants")}
        | {"id": row["id"], "replies": row["replies"]}
        for row in rows
    ]
    random.Random(1).shuffle(shown)
    write(out / "sheet.jsonl", shown)


@contextmanager
def open_answer(model: Path, threads: int, variant: str | None) -> Iterator[Answer]:
    """Open a model: what answers."""
    if model.suffix != ".gguf":
        yield answers_of(load_model(model, variant=variant))
        return
    with llama(model, context=2048, threads=threads) as server:

        def answer(messages: list[Message], sampling: Sampling) -> Reply:
            body = {"messages": messages, "temperature": 0, "max_tokens": MAX_TOKENS}
            url = f"{server.url}/v1/chat/completions"
            told = requests.post(url, json=body, timeout=600)
            told.raise_for_status()
            (choice,) = told.json()["choices"]
            finish = "end" if choice["finish_reason"] == "stop" else "length"
            n_tokens = told.json()["usage"]["completion_tokens"]
            return Reply(choice["message"]["content"], finish, n_tokens)

        yield answer


def count(folder: Path) -> None:
    """Print the share of good replies; a reply that readers differ on counts by its share."""
    rows = {row["id"]: row for row in read(folder / "replies.jsonl")}
    talks = json.loads(CONVERSATIONS.read_text(encoding="utf-8"))
    grades: defaultdict[str, list[bool]] = defaultdict(list)
    for path in sorted(folder.glob("grades-*.jsonl")):
        for grade in read(path):
            grades[grade["id"]].append(grade["good"])
    unread = rows.keys() - grades.keys()
    if unread:
        sys.exit(f"{len(unread)} of {len(rows)} replies have no grade")
    several = [found for found in grades.values() if len(found) > 1]
    if several:
        same = sum(len(set(found)) == 1 for found in several) / len(several)
        print(f"all readers of a reply agree on {same:.0%} of {len(several)}")
    shares: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for key, row in rows.items():
        share = sum(grades[key]) / len(grades[key])
        for group in ("all", talks[row["talk"]]["skill"]):
            shares[group][row["model"]].append(share)
    models = list(shares["all"])
    print("| skill | n |", " | ".join(models), "|")
    print("|---|--:|" + "--:|" * len(models))
    for group, found in shares.items():
        cells = [f"{sum(x) / len(x):.0%}" for x in found.values()]
        if group == "all":
            cells = [
                f"{cell} ({low:.0%} to {high:.0%})"
                for cell, (low, high) in zip(cells, map(wilson, found.values()))
            ]
        print(f"| {group} | {len(found[models[0]])} |", " | ".join(cells), "|")


def wilson(shares: list[float], z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's interval of a share."""
    n, p = len(shares), sum(shares) / len(shares)
    middle = p + z * z / (2 * n)
    around = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - around) / (1 + z * z / n), (middle + around) / (1 + z * z / n)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
