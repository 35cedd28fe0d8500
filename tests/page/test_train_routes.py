"""Train on the page: who may use it, what it takes, and that it touches nothing of others."""

import argparse
import json
import math
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import ROOT, SECONDS, TINY, started, until

import gptcore.page.train.workbench as workbench
from gptcore.bundle import read_facts
from gptcore.checks import UserError
from gptcore.gradio.launch import trains
from gptcore.model import OnnxModel, load_model
from gptcore.models import Models
from gptcore.page.train import progress
from gptcore.page.train.child import Child, output_of
from gptcore.page.train.progress import progress_of
from gptcore.page.train.settings import checked
from gptcore.page.train.workbench import Workbench
from gptcore.system.files import LOCK, locked, new_file, write_json
from training.report.report import write_report
from training.run.directory import Run

CHATS = "question,answer\nHow are you?,I am well.\nWho are you?,A model.\n"


@pytest.fixture(scope="module")
def first() -> OnnxModel:
    return load_model(TINY / "model", threads=1, variant="fp32")


@pytest.fixture
def bench(tmp_path: Path, first: OnnxModel) -> Workbench:
    return Workbench(tmp_path / "runs", tmp_path / "models", Models(first).add)


@pytest.fixture(scope="module")
def served(
    first: OnnxModel, serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Workbench, str, int]:
    folder = tmp_path_factory.mktemp("home")
    bench = Workbench(folder / "runs", folder / "models", str)
    return bench, *host_and_port(serve(first, bench=bench))


def host_and_port(url: str) -> tuple[str, int]:
    found = urlsplit(url)
    assert found.hostname and found.port
    return found.hostname, found.port


def ask(
    served: tuple, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    with closing(HTTPConnection(*served[1:], timeout=SECONDS)) as connection:
        sent = json.dumps(body) if isinstance(body, dict) else body
        connection.request(method, path, sent, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def when_idle(bench: Workbench) -> dict[str, Any]:
    until(lambda: not bench.doing, 5 * SECONDS)  # for PyTorch and a plan
    return bench.state()


def give(bench: Workbench, name: str, text: str) -> None:
    path, _ = bench.room_for(name)
    path.write_text(text, encoding="utf-8")


def options(public: bool = False, behind_proxy: bool = False) -> argparse.Namespace:
    return argparse.Namespace(public=public, behind_proxy=behind_proxy)


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_memory_of_train_is_as_good_as_none(bench: Workbench, text: str) -> None:
    bench.folder.mkdir(parents=True)
    for path in (bench.facts, bench.folder / "settings.json"):
        path.write_text(text)
    found = bench.state()
    assert (found["name"], found["people"], found["refused"]) == ("mine", [], {})


def test_a_page_that_others_can_reach_does_not_train() -> None:
    assert trains(options(), "127.0.0.1")
    assert trains(options(), "::1")
    assert not trains(options(), "0.0.0.0")
    assert not trains(options(public=True), "127.0.0.1")  # as on a Space
    assert not trains(options(behind_proxy=True), "127.0.0.1")


def test_a_page_without_train_has_none_of_its_addresses(first: OnnxModel, serve) -> None:
    own = None, *host_and_port(serve(first))
    for method, path in (("GET", "state"), ("POST", "train"), ("PUT", "texts/a.txt")):
        assert ask(own, method, f"/train/{path}")[0] == 403
    assert ask(own, "GET", "/view/facts.json")[1]["train"] is False


def test_this_machine_alone_is_offered_train(served: tuple) -> None:
    assert ask(served, "GET", "/view/facts.json")[1]["train"] is True
    assert ask(served, "GET", "/train/state")[0] == 200


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "Via", "X-Forwarded-Host"]
)
def test_nobody_trains_through_a_proxy(served: tuple, header: str) -> None:
    assert ask(served, "GET", "/view/facts.json", **{header: "1.2.3.4"})[1]["train"] is False
    for method, path in (("GET", "state"), ("POST", "train"), ("PUT", "texts/a.txt")):
        status, answer = ask(served, method, f"/train/{path}", "{}", **{header: "127.0.0.1"})
        assert (status, "only this machine" in answer["detail"]) == (403, True)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_another_page_cannot_train_here(served: tuple, origin: str) -> None:
    for method, path in (("POST", "train"), ("POST", "clear"), ("PUT", "texts/a.txt")):
        assert ask(served, method, f"/train/{path}", "{}", Origin=origin)[0] == 403
    own = f"http://127.0.0.1:{served[2]}"
    assert ask(served, "POST", "/train/stop", {}, Origin=own)[0] == 200


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("notes.txt", "notes.txt"),
        ("..%2F..%2Fevil.txt", "evil.txt"),
        ("a%5C..%5Cevil.txt", "evil.txt"),
        ("%2Fetc%2Fpasswd", "passwd"),
        ("%E6%97%A5%E8%AE%B0.txt", "日记.txt"),
        (".hidden", "hidden"),
        ("a%00b%3C.txt", "a_b_.txt"),
        ("x" * 300 + ".txt", "x" * 196 + ".txt"),
        ("%E6%97%A5" * 110 + ".txt", "日" * 65 + ".txt"),
        ("x." + "y" * 199 + ".", "y" * 199),
        ("a%2520b%3F.txt", "a_20b_.txt"),
    ],
)
def test_a_text_stays_in_its_folder(served: tuple, name: str, kept: str) -> None:
    bench = served[0]
    status, state = ask(served, "PUT", f"/train/texts/{name}", "Hello.")
    assert status == 200
    assert [text["name"] for text in state["texts"]] == [kept]
    assert (bench.texts / kept).read_text() == "Hello."
    assert [p.name for p in bench.runs.parent.rglob("*") if p.is_file()] == [kept]
    assert ask(served, "POST", "/train/remove", {"name": kept})[1]["texts"] == []


def test_a_text_takes_no_others_place(served: tuple) -> None:
    assert ask(served, "PUT", "/train/texts/Q&A.txt", "One.")[0] == 200
    for name in ("Q&A.txt", "Q+A.txt"):
        status, answer = ask(served, "PUT", f"/train/texts/{name}", "Two.")
        assert status == 400
        assert answer["detail"].startswith("Q_A.txt is among the texts already: remove that, or")
    assert (served[0].texts / "Q_A.txt").read_text() == "One."
    assert ask(served, "POST", "/train/remove", {"name": "Q_A.txt"})[1]["texts"] == []


@pytest.mark.parametrize("name", ["..", "%2E", "", "%20", "..%2F"])
def test_a_text_needs_a_name(served: tuple, name: str) -> None:
    status, answer = ask(served, "PUT", f"/train/texts/{name}", "Hello.")
    assert (status, "no name of a file" in answer["detail"]) == (400, True)


def test_a_model_is_exported_again_where_the_run_has_newer_weights(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    manifest, exported = run / "checkpoints" / "step-5" / "manifest.json", out / "gptcore.json"
    for i, path in enumerate((manifest, exported), start=1):
        assert not workbench.is_exported(run, out)
        path.parent.mkdir(parents=True)
        path.touch()
        os.utime(path, (i, i))
    assert not workbench.is_exported(tmp_path / "no run", out)
    assert workbench.is_exported(run, out)
    (run / "summary.json").touch()  # now the best checkpoint counts
    assert not workbench.is_exported(run, out)


def test_too_large_a_text_is_refused_and_leaves_nothing(
    served: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench, "MOST_BYTES", 10)
    assert ask(served, "PUT", "/train/texts/a.txt", "123456")[0] == 200
    status, answer = ask(served, "PUT", "/train/texts/b.txt", "123456")
    assert status == 400
    assert "b.txt is too large" in answer["detail"]
    assert [p.name for p in served[0].texts.glob("*")] == ["a.txt"]
    ask(served, "POST", "/train/clear", {})


@pytest.mark.parametrize(
    ("meanwhile", "told"),
    [
        (lambda bench: bench.begin("plan", {}), "a command is running"),
        (lambda bench: give(bench, "c.txt", "123456"), "a.txt is too large"),
    ],
    ids=["a command", "another text"],
)
def test_what_happens_while_a_text_arrives_is_asked_again_at_its_end(
    served: tuple,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Workbench], None],
    told: str,
) -> None:
    monkeypatch.setattr(workbench, "MOST_BYTES", 10)
    bench = served[0]
    give(bench, "b.txt", "1")
    with closing(HTTPConnection(*served[1:], timeout=SECONDS)) as connection:
        connection.putrequest("PUT", "/train/texts/a.txt")
        connection.putheader("Content-Length", "6")
        connection.endheaders(b"123")
        until(lambda: list(bench.texts.glob(".*")))
        meanwhile(bench)
        connection.send(b"456")
        answer = connection.getresponse()
        assert answer.status == 400 and told in json.loads(answer.read())["detail"]
    assert not {path.name for path in bench.texts.glob("*")} - {"b.txt", "c.txt"}
    bench.stop()
    when_idle(bench)
    ask(served, "POST", "/train/clear", {})


def test_a_look_gives_way_to_what_a_person_does(served: tuple) -> None:
    """The page begins a look by itself: nobody knows what to stop."""
    bench = served[0]
    ask(served, "PUT", "/train/texts/a.txt", "Hello.")
    for act in (
        lambda: ask(served, "PUT", "/train/texts/b.txt", "Hello."),
        lambda: ask(served, "POST", "/train/remove", {"name": "a.txt"}),
        lambda: ask(served, "POST", "/train/clear", {}),
    ):
        bench.begin("look", {})
        look = bench.child
        assert act()[0] == 200
        assert look.wait() in workbench.STOPPED and not bench.doing
    assert not bench.folder.exists()


def test_two_uploads_of_one_name_do_not_mix(served: tuple) -> None:
    with ExitStack() as stack:
        connections = [
            stack.enter_context(closing(HTTPConnection(*served[1:], timeout=SECONDS)))
            for _ in range(2)
        ]
        for half in (0, 1):
            for sign, connection in zip("ab", connections):
                if half == 0:
                    connection.putrequest("PUT", "/train/texts/same.txt")
                    connection.putheader("Content-Length", "100000")
                    connection.endheaders()
                connection.send(sign.encode() * 50_000)
                time.sleep(0.2)
        said = sorted(connection.getresponse().status for connection in connections)
        assert said == [200, 400], "the later one is told that the name is taken"
    text = (served[0].texts / "same.txt").read_text()
    assert text in ("a" * 100_000, "b" * 100_000)
    ask(served, "POST", "/train/clear", {})


def test_a_text_that_does_not_arrive_whole_leaves_nothing(served: tuple) -> None:
    connection = HTTPConnection(*served[1:], timeout=SECONDS)
    connection.putrequest("PUT", "/train/texts/half.txt")
    connection.putheader("Content-Length", "1000")
    connection.endheaders(b"half")
    time.sleep(0.3)
    connection.close()
    until(lambda: not list(served[0].texts.glob("*")))


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("nothing", {}, 404),
        ("look", "[]", 400),
        ("look", "{", 400),
        ("look", {}, 400),  # there is no text
        ("fetch", {"dataset": "no such"}, 400),
        ("export", {"name": "../../evil"}, 400),
        ("look", {"minutes": "ten"}, 400),
        ("look", {"minutes": True}, 400),
        ("look", {"me": 5}, 400),
        ("remove", {"name": "../settings.json"}, 200),  # which is no text
    ],
)
def test_nonsense_gets_an_answer(served: tuple, path: str, body: Any, status: int) -> None:
    found, answer = ask(served, "POST", f"/train/{path}", body)
    assert found == status
    assert status == 200 or answer["detail"]


@pytest.mark.parametrize("minutes", [0, 0.09, -1, float("nan"), float("inf"), 1440.1, None, [5]])
def test_minutes_are_a_sensible_number(minutes: object) -> None:
    with pytest.raises(UserError, match=r"minutes must be a number from 0\.1 to 1,440"):
        checked({"minutes": minutes})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("../x", "the name ../x holds /: use letters"),
        ("a/b!", "the name a/b! holds / !: use letters"),
        ("my model!", "the name my-model! holds !: use letters"),
        ("a, b", "the name a,-b holds ,: use letters"),
        (" ", "the name of the model is empty: type one"),
        (".page", "the name .page begins with a dot"),
        ("-x" * 30, "has 60 characters: use at most 40"),
        ("x\0", "name must be a short text"),
    ],
)
def test_a_model_has_a_plain_name(name: str, told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        checked({"name": name})


def test_the_fewest_and_the_most_minutes_are_fit(bench: Workbench) -> None:
    for minutes in bench.state()["bounds"]:
        assert checked({"minutes": minutes}) == {"minutes": minutes}


def test_a_name_of_several_words_is_one_of_a_folder() -> None:
    assert checked({"name": " My  shop\n"}) == {"name": "My-shop"}


def test_a_look_says_what_the_command_says(bench: Workbench) -> None:
    give(bench, "chats.csv", CHATS)
    bench.begin("look", {})
    first = bench.child
    bench.begin("look", {})
    assert first.wait() in workbench.STOPPED, "the second one takes its place"
    with pytest.raises(UserError, match="the name of the model is empty"):
        bench.begin("plan", {"name": ""})
    assert not bench.doing, "a plan waits for the look"
    state = when_idle(bench)
    assert state["error"] == ""
    assert state["look"].startswith("chats.csv: CSV, columns")
    assert "2 conversations" in state["look"]
    bench.remove("chats.csv")
    assert bench.state()["look"] == ""


def test_a_training_that_waits_for_a_look_does_not_begin_once_that_is_stopped(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(bench, "chats.csv", CHATS)
    bench.begin("look", {})
    look = bench.following

    def join() -> None:
        bench.stop()  # a person presses Stop while the training waits
        Thread.join(look)

    monkeypatch.setattr(look, "join", join)
    bench.begin("train", {})
    assert not bench.doing and bench.state()["begun"] == ""
    bench.begin("plan", {})
    assert bench.doing == "plan", "a later command does begin"
    bench.stop()
    when_idle(bench)


def test_a_plan_that_comes_while_a_look_is_begun_waits_for_it(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(bench, "chats.csv", CHATS * 20)
    plan = Thread(target=bench.begin, args=("plan", {}))

    def begun(*arguments: Any) -> Child:
        monkeypatch.setattr(workbench, "Child", Child)
        plan.start()
        time.sleep(0.2)
        return Child(*arguments)

    monkeypatch.setattr(workbench, "Child", begun)
    bench.begin("look", {})
    plan.join()
    assert "conversations" in bench.state()["look"] and bench.doing == "plan"
    bench.stop()
    when_idle(bench)


def test_what_a_look_has_found_is_forgotten_when_the_next_one_begins(bench: Workbench) -> None:
    give(bench, "chat.txt", "[01.03.24, 10:00:00] Ann: Hello\n[01.03.24, 10:01:00] Ben: Hi\n")
    bench.begin("look", {})
    state = when_idle(bench)
    assert [*state["refused"]] == ["chat.txt"] and state["people"] == ["Ann", "Ben"]
    bench.begin("look", {"me": "Ben"})
    bench.stop()
    state = when_idle(bench)
    assert state["refused"] == {} and state["people"] == ["Ann", "Ben"]


@pytest.mark.slow
def test_little_talk_begins_with_the_model_that_ships_until_a_person_chooses(
    bench: Workbench,
) -> None:
    give(bench, "chats.csv", CHATS)
    bench.begin("look", {})
    assert when_idle(bench)["start"] == "", "no such model is offered"
    shutil.copytree(ROOT / "models" / "default", bench.models / "default")
    assert bench.state()["start"] == "default"
    give(bench, "book.txt", "It was a dark and stormy night. " * 20_000)
    bench.begin("look", {})
    assert when_idle(bench)["start"] == "", "there is enough for a new model"
    bench.remove("book.txt")
    bench.begin("look", {})
    state = when_idle(bench)
    assert state["start"] == "default"
    assert "little text" in state["look"] and "--init" not in state["look"], "it is chosen"
    bench.begin("plan", {"minutes": 60})
    assert f"{read_facts(bench.models / 'default').parameters:,} param" in when_idle(bench)["plan"]
    give(bench, "book.txt", "It was a dark and stormy night. " * 20_000)
    bench.begin("look", {})
    assert when_idle(bench)["start"] == "", "a plan chooses for nobody"
    bench.remove("book.txt")
    bench.begin("plan", {"start": "", "minutes": 1})
    bench.stop()
    assert when_idle(bench)["start"] == "", "it was chosen"


def test_a_training_may_begin_with_a_model_that_is_there(bench: Workbench) -> None:
    for name in ("default", "nano"):
        shutil.copytree(ROOT / "models" / name, bench.models / name)
    shutil.copytree(TINY / "translator", bench.models / "zh-en")
    shutil.copytree(TINY / "model", bench.models / ".nano.tmp")  # as an export that is going on
    (bench.models / "empty").mkdir()
    starts = {"default": "gptcore chat", "nano": "gptcore nano"}  # as the chat calls them

    def named() -> dict[str, str]:
        return {folder: start["name"] for folder, start in bench.state()["starts"].items()}

    assert named() == starts
    shutil.copytree(ROOT / "models" / "nano", bench.models / "other")
    equal = {"nano": "gptcore nano (nano)", "other": "gptcore nano (other)"}
    assert named() == starts | equal
    shutil.rmtree(bench.models / "other")
    give(bench, "chats.csv", CHATS * 20)
    for start in ("empty", "zh-en", "../models/nano"):
        with pytest.raises(UserError, match=r"there is no model .* to begin with"):
            bench.begin("plan", {"start": start})
    bench.begin("plan", {"start": "nano", "minutes": 60})
    state = when_idle(bench)
    assert state["error"] == "" and state["start"] == "nano"
    assert f"{read_facts(bench.models / 'nano').parameters:,} parameters" in state["plan"]


def test_adapters_are_trained_of_a_model_that_can_have_them(bench: Workbench) -> None:
    for name in ("nano", "other"):
        shutil.copytree(ROOT / "models" / "nano", bench.models / name)
    facts = json.loads((bench.models / "other" / "gptcore.json").read_text())
    facts["config"]["norm"] = "layernorm"
    write_json(bench.models / "other" / "gptcore.json", facts)
    starts = bench.state()["starts"]
    assert starts["nano"]["adapts"] and not starts["other"]["adapts"]
    give(bench, "chats.csv", CHATS * 20)
    for start, adapters, rank in (
        ("nano", True, ["--lora", "16"]),
        ("nano", False, []),
        ("other", True, []),  # where none are offered
        ("", True, []),
    ):
        asked = checked({"start": start, "adapters": adapters})
        command = bench.arguments("train", bench.settings() | asked, {})
        assert [word for word in command if word in ("--lora", "16")] == rank
    with pytest.raises(UserError, match="adapters must be true or false"):
        checked({"adapters": "yes"})
    bench.begin("plan", {"start": "nano", "adapters": True, "minutes": 60})
    state = when_idle(bench)
    assert state["error"] == "" and "adapters of rank 16 are trained" in state["plan"]
    assert state["adapters"] is True, "it stays chosen"


def test_a_page_whose_terminal_is_closed_ends_its_command(tmp_path: Path) -> None:
    script = (
        "import time\nfrom pathlib import Path\n"
        "from gptcore.page.train.workbench import Workbench\n"
        "from gptcore.system.command_line import guard\n"
        "def run():\n"
        "    bench = Workbench(Path('runs'), Path('models'), str)\n"
        "    bench.room_for('a.txt')[0].write_text('Hello. ' * 1000)\n"
        "    bench.begin('plan', {})\n"
        "    print(bench.child.process.pid, flush=True)\n"
        "    time.sleep(60)\n"
        "raise SystemExit(guard(run, ''))"
    )
    with started(script, tmp_path) as process:
        command = int(process.stdout.readline())
        process.stdout.close()
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)  # shells send it twice
        assert process.wait(60) == workbench.INTERRUPTED
    with pytest.raises(ProcessLookupError):
        os.kill(command, 0)


def test_a_failed_command_says_why(bench: Workbench) -> None:
    give(bench, "book.txt", "Some words.")
    bench.begin("look", {"columns": "a,b,c"})
    state = when_idle(bench)
    assert "--columns a,b,c: name question and answer" in state["error"] == state["unusable"]


def test_why_a_look_refuses_all_texts_stands_beside_each_of_them(bench: Workbench) -> None:
    give(bench, "picture.png", "\x00\x01")
    give(bench, "white.txt", " ")
    bench.begin("look", {})
    state = when_idle(bench)
    assert state["error"] == "" and [*state["refused"]] == ["picture.png", "white.txt"]
    assert "picture.png: it is UTF-16 without" in state["unusable"]
    assert state["unusable"].endswith("; white.txt: it holds nothing but white space")


def test_a_chat_asks_whose_words_are_learned(bench: Workbench) -> None:
    lines = (f"01.02.24, 10:0{i} - {('Ann', 'Ben')[i % 2]}: Hi {i}\n" for i in range(6))
    give(bench, "chat.txt", "".join(lines))
    bench.begin("look", {})
    state = when_idle(bench)
    assert state["asking"] == ["chat.txt"] and state["people"] == ["Ann", "Ben"]
    assert state["error"] == ""
    give(bench, "book.txt", "Some words.")  # which could be learned without the chat
    bench.begin("look", {})
    for kind in ("plan", "train"):
        with pytest.raises(UserError, match="choose first whose words the model should learn"):
            bench.begin(kind, {})
    bench.begin("look", {"me": "Ann"})
    state = when_idle(bench)
    assert state["asking"] == [] == [*state["refused"]] and "chat of Ann" in state["look"]


def test_files_that_cannot_be_read_are_left_out_each_with_its_reason(bench: Workbench) -> None:
    give(bench, "a.png", "\x89PNG\x00\x01")
    give(bench, "chats.csv", CHATS)
    give(bench, "z.txt", " ")
    for i in range(20):  # more files than a look lists
        give(bench, f"n{i}.txt", "Some words.")
    bench.begin("look", {})
    state = when_idle(bench)
    assert state["error"] == state["unusable"] == ""
    assert [*state["refused"]] == ["a.png", "z.txt"] and state["people"] == []
    assert state["refused"]["z.txt"] == "it holds nothing but white space"
    bench.remove("z.txt")
    assert bench.state()["refused"] == {}, "nothing is known until the next look"


def test_a_run_of_somebody_else_is_neither_continued_nor_deleted(bench: Workbench) -> None:
    other = bench.runs / "mine"
    other.mkdir(parents=True)
    (other / "config.json").write_text("{}")
    give(bench, "chats.csv", CHATS)
    with pytest.raises(UserError, match=r"the name mine is taken by .*mine: choose another"):
        bench.begin("train", {"name": "mine"})
    bench.clear(keeps=False)
    assert (other / "config.json").is_file()
    assert not bench.folder.exists()


def test_a_run_that_a_killed_page_left_training_is_not_thrown_away(bench: Workbench) -> None:
    give(bench, "chats.csv", CHATS)
    run = bench.runs / "mine"
    write_json(bench.folder / "settings.json", {"begun": "mine"})
    with locked(run / LOCK), pytest.raises(UserError, match=r"mine is being trained: wait until"):
        bench.clear(keeps=False)
    assert run.is_dir() and bench.listed()
    bench.clear(keeps=False)
    assert not run.exists() and not bench.folder.exists()


def test_a_training_that_was_killed_before_it_began_blocks_no_name(bench: Workbench) -> None:
    give(bench, "chats.csv", CHATS)
    write_json(bench.folder / "settings.json", {"begun": "mine"})
    (bench.runs / "mine").mkdir()
    (bench.runs / "mine" / LOCK).touch()
    settings = bench.settings() | {"begun": ""}
    assert "--resume" not in bench.arguments("train", settings, {})
    bench.begin("plan", {"name": "other"})
    bench.following.join()
    assert "too short to plan for" in bench.error and bench.settings()["name"] == "other"
    (bench.runs / "mine" / "config.json").touch()
    with pytest.raises(UserError, match="the name mine is taken by"):
        bench.arguments("train", settings, {})


def test_a_run_that_is_kept_can_be_resumed(bench: Workbench) -> None:
    shutil.copytree(TINY / "run", bench.runs / "mine")
    write_json(bench.folder / "settings.json", {"begun": "mine"})
    write_json(bench.shards / "one" / "manifest.json", {"name": "one"})
    bench.clear(keeps=True)
    assert (bench.runs / "shards" / "one" / "manifest.json").is_file()
    assert not bench.folder.exists() and (bench.runs / "mine").exists()


def test_steps_are_taken_when_a_step_is_logged(bench: Workbench) -> None:
    run = shutil.copytree(TINY / "run", bench.runs / "mine")
    rows = (run / "metrics.jsonl").read_text().splitlines()
    bench.folder.mkdir()
    (bench.folder / "settings.json").write_text('{"begun": "mine"}')
    shutil.rmtree(run / "checkpoints")
    bench.doing, bench.begun_at = "train", 3  # a training that goes on, as `begin` leaves it
    for n_rows, is_stepping in ((0, False), (3, False), (len(rows), True)):
        (run / "metrics.jsonl").write_text("\n".join(rows[:n_rows]))
        assert bench.state()["is_stepping"] is is_stepping
    bench.doing = ""
    assert not bench.state()["is_stepping"]


def test_without_pytorch_it_says_what_to_install(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench, "find_spec", lambda name: None)
    first, then = bench.state()["missing"].splitlines()
    assert then == "pip install -r requirements-train.txt"
    assert f"\n# {first}\n{then}\n" in (ROOT / "README.md").read_text()
    [package] = [word for word in first.split() if word.startswith("torch==")]
    assert f"\n{package} " in (ROOT / "requirements-train.txt").read_text()
    give(bench, "chats.csv", CHATS)
    with pytest.raises(UserError, match="PyTorch is missing"):
        bench.begin("look", {})


def test_the_datasets_are_those_of_training(bench: Workbench) -> None:
    bench.list_datasets()
    from training.datasets.registry import DATASETS

    assert [found["name"] for found in bench.state()["datasets"]] == [*DATASETS]
    assert list(bench.folder.glob("*")) == []


def test_a_text_that_a_command_writes_is_listed_when_it_is_whole(bench: Workbench) -> None:
    path, _ = bench.room_for("jokes.jsonl")
    with new_file(path) as temporary:
        temporary.write_text("half")
        assert bench.state()["texts"] == []
    assert [text["name"] for text in bench.state()["texts"]] == ["jokes.jsonl"]


def begun_child(script: str, output: Path) -> Child:
    """Start a command, and wait until it has said that it has begun."""
    child = Child(["-c", script], output)
    until(lambda: output_of(output) == ["begun"])
    return child


def test_a_command_that_is_stopped_cleans_up(tmp_path: Path) -> None:
    script = (
        "from gptcore.system.command_line import guard\nimport time\n"
        "def run():\n"
        "    try:\n"
        "        print('begun', flush=True)\n"
        "        time.sleep(60)\n"
        "    finally: print('cleaned up')\n"
        "raise SystemExit(guard(run, ''))"
    )
    child = begun_child(script, tmp_path / "said.txt")
    child.stop()
    assert child.wait() == 130
    assert output_of(tmp_path / "said.txt") == ["begun", "cleaned up", "stopped"]
    child.stop()  # which has ended
    assert Child(["-c", "print('again')"], tmp_path / "said.txt", goes_on=True).wait() == 0
    assert output_of(tmp_path / "said.txt") == ["begun", "cleaned up", "stopped", "again"]


def test_a_command_that_is_stopped_twice_is_told_once(tmp_path: Path) -> None:
    script = (
        "import time\nfrom training.machine.interrupts import Interrupts\n"
        "with Interrupts() as interrupts:\n"
        "    print('begun', flush=True)\n"
        "    while not interrupts.received: time.sleep(0.01)\n"
        "    time.sleep(1)\n"
        "    print('saved')"
    )
    child = begun_child(script, tmp_path / "said.txt")
    child.stop()
    time.sleep(0.2)
    child.stop()  # a second press while the last step is taken
    child.end()
    assert child.wait() == 0 and output_of(tmp_path / "said.txt")[-1] == "saved"


def test_a_bar_is_shown_as_it_is_now(tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    said.write_bytes(b"first\r\n 10%|\r 20%|\r 30%|\n\nlast \xff\n")
    assert output_of(said) == ["first", " 30%|", "last \N{REPLACEMENT CHARACTER}"]
    assert output_of(tmp_path / "none.txt") == []
    said.write_bytes(b"the plan\n" + b"\r 10%| step" * 100_000 + b"\rlast")
    assert output_of(said) == ["the plan", "last"], "a long bar hides nothing before it"


def report_of(path: Path, held_out_tokens: int) -> None:
    """Write a run's report as if so many tokens were held out."""
    run = Run.load(path)
    write_report(replace(run, data=replace(run.data, held_out_tokens=held_out_tokens)))


def test_progress_is_read_from_a_run(tmp_path: Path) -> None:
    run = shutil.copytree(TINY / "run", tmp_path / "run")
    report_of(run, 5700)
    found = progress_of(run)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert found["step"] == found["steps"] == max(row["step"] for row in rows)
    assert found["left_s"] == 0 and not found["is_measuring"]
    measured = [row for row in rows if "val_loss" in row]
    assert found["held_out"] == [[row["step"], row["bits_per_byte"]] for row in measured]
    factor = measured[0]["bits_per_byte"] / measured[0]["val_loss"]
    assert found["loss"] == [[row["step"], row["loss"] * factor] for row in rows if "loss" in row]
    assert progress_of(tmp_path / "none") is None


def test_a_mean_with_the_weights_before_is_no_point_of_the_curve(tmp_path: Path) -> None:
    run = shutil.copytree(TINY / "run", tmp_path / "run")
    report_of(run, 5700)
    before = progress_of(run)
    row = {"step": before["steps"], "val_loss": 9.0, "bits_per_byte": 4.5, "kept": 0.4}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")
    said = {"taken": row["step"], "samples": None, "findings": [], "few_held_out": False}
    write_json(run / "report.json", said)
    found = progress_of(run)
    assert found["held_out"] == before["held_out"] and found["bits_per_byte"] == 4.5


def test_a_run_is_complete_when_the_weights_before_it_are_mixed_in(tmp_path: Path) -> None:
    run = shutil.copytree(TINY / "run", tmp_path / "run")
    assert progress_of(run)["is_complete"]
    loaded = Run.load(run)
    replace(loaded, train=replace(loaded.train, keep=0.4)).write_config()
    for kept in ({}, {"kept": 0.2}):
        (run / "summary.json").write_text(json.dumps(loaded.summary() | kept))
        assert progress_of(run)["is_complete"] == bool(kept)
    (run / "summary.json").write_text("{")
    assert not progress_of(run)["is_complete"]


def test_a_loss_of_few_tokens_is_not_told(tmp_path: Path) -> None:
    run = shutil.copytree(TINY / "run", tmp_path / "run")
    found = progress_of(run)  # in the moment between the first figures and the report
    assert found["held_out"] == [] and found["bits_per_byte"] is None
    for n_tokens in (5700, 57):
        report_of(run, n_tokens)
        found = progress_of(run)
        assert bool(found["held_out"]) == (n_tokens == 5700)
        assert (found["bits_per_byte"] is None) == (n_tokens == 57)
    assert "Only 57 tokens could be set aside" in found["findings"][0]["text"]


def test_a_loss_is_as_large_before_an_evaluation_as_after_it(tmp_path: Path) -> None:
    run = shutil.copytree(TINY / "run", tmp_path / "run")
    measured = progress_of(run)["loss"][0]
    first, *_ = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text(first)
    found = progress_of(run)
    assert found["held_out"] == []
    assert found["loss"] == [[1, pytest.approx(measured[1], rel=0.01)]]
    config = json.loads((run / "config.json").read_text())
    del config["data"]["held_out_bytes"]  # as of a run that was begun before they were counted
    config["data"] |= {"n_tokens": 1000, "n_bytes": 2000}
    (run / "config.json").write_text(json.dumps(config))
    found = progress_of(run)
    assert found["loss"] == [[1, pytest.approx(json.loads(first)["loss"] / 2 / math.log(2))]]


def test_a_run_that_was_stopped_is_at_the_step_that_it_saved(tmp_path: Path) -> None:
    run = shutil.copytree(TINY / "run", tmp_path / "run")
    rows = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join(rows[:3]))  # logged less often
    assert progress_of(run)["step"] == 6 == progress_of(run)["steps"]
    shutil.rmtree(run / "checkpoints")
    assert progress_of(run)["step"] == json.loads(rows[2])["step"] < 6


def test_what_the_report_says_is_read_from_its_file(tmp_path: Path) -> None:
    run = shutil.copytree(TINY / "run", tmp_path / "run")
    assert progress_of(run)["samples"] is None
    said = {"taken": 4, "findings": [{"text": "Few.", "remedy": "more"}], "few_held_out": True}
    said["samples"] = {"step": 4, "written": [["Who?", "I."]]}
    (run / "report.json").write_text(json.dumps(said))
    found = progress_of(run)
    assert {name: found[name] for name in said} == said


def test_the_time_left_goes_on_between_two_logged_steps_and_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, now = tmp_path / "run", time.time()
    monkeypatch.setattr(progress, "time", SimpleNamespace(time=lambda: now))
    (run / "checkpoints").mkdir(parents=True)
    text = {"chat": True, "n_tokens": 1000, "n_bytes": 2000}
    config = {"train": {"steps": 100, "eval_every": 30}, "data": text, "clock": None}

    def found(clock: dict | None, *rows: dict, ago_s: float = 0) -> dict[str, Any]:
        (run / "config.json").write_text(json.dumps(config | {"clock": clock}))
        (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
        os.utime(run / "metrics.jsonl", (now - ago_s,) * 2)
        return progress_of(run)

    compiled, later = ({"step": n, "loss": 2, "seconds": s} for n, s in ((10, 50.0), (20, 60.0)))
    assert found(None, compiled)["left_s"] is None, "the first steps compile"
    assert found(None, compiled, later)["left_s"] == pytest.approx(80, abs=1)
    assert found(None, compiled, later, ago_s=30)["left_s"] == pytest.approx(50, abs=1)
    assert found(None, compiled, later, ago_s=300)["left_s"] == 0
    clock = {"budget_s": 600.0, "most_steps": 0}
    assert found(clock, compiled)["left_s"] == pytest.approx(550, abs=1)
    worth = clock | {"most_steps": 50}  # the text is worth no more steps
    assert found(worth, compiled)["left_s"] is None
    assert found(worth, compiled, later)["left_s"] == pytest.approx(30, abs=1)

    (run / "checkpoints" / "step-30").mkdir()  # it is saved, and then measured
    assert found(None, compiled, later)["is_measuring"]
    measured = {"step": 30, "val_loss": 2.0, "bits_per_byte": 1.0}
    assert not found(None, compiled, later, measured)["is_measuring"]
    (run / "checkpoints" / "step-90").mkdir()  # the last step is near, and measured in its place
    assert not found(None, compiled, later, measured)["is_measuring"]


def test_of_many_logged_steps_few_are_read_and_every_evaluation(tmp_path: Path) -> None:
    run = shutil.copytree(TINY / "run", tmp_path / "run")
    report_of(run, 5700)
    step = {"loss": 2.0, "seconds": 1.0}
    measured = {"val_loss": 2.0, "bits_per_byte": 1.0}
    rows = [{"step": n, **kind} for n in range(1, 1001) for kind in (step, measured)[: 1 + n % 2]]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (run / "metrics.jsonl").write_text(text + '{"step": 1001, "lo')
    found = progress_of(run)
    assert found["held_out"] == [[n, 1.0] for n in range(1, 1001, 2)]
    assert found["step"] == 1000 and 200 < len(found["loss"]) <= 300
    assert [n for n, _ in found["loss"]] == sorted(n for n, _ in found["loss"])


def test_an_output_that_cannot_be_read_does_not_hold_up_the_next_command(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> list[str]:
        raise OSError("the disk is gone")

    give(bench, "chats.csv", CHATS)
    monkeypatch.setattr(workbench, "output_of", fails)
    bench.begin("look", {})
    bench.following.join()
    monkeypatch.undo()
    assert bench.state()["error"] == "the disk is gone"
    bench.begin("look", {})
    assert "2 conversations" in when_idle(bench)["look"]
