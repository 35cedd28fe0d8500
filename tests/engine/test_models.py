"""Several models in one process: opened when asked for, closed to make room for others."""

import asyncio
import gc
import json
import shutil
import threading
import weakref
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import requests
from api_server import HELLO, SECONDS, error_of, served
from conftest import NANO, TINY, until

import gptcore.models
from gptcore.api.access import Access
from gptcore.bundle import VARIANTS, find_models, read_facts, write_facts
from gptcore.checks import Busy, UserError
from gptcore.engine.generate import Request
from gptcore.engine.sampling import Sampling
from gptcore.model import OnnxModel, load_model
from gptcore.models import Models, NotHere, NotOpened, load_models, needed_bytes
from gptcore.page.shell import page_facts

NAMES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def nano() -> OnnxModel:
    return opened(NANO)


def opened(folder: Path, variant: str | None = None) -> OnnxModel:
    return load_model(folder, threads=1, device="cpu", variant=variant or "fp32")


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which models were loaded: in fp32 if no format is named, so that all answer
    alike."""
    threads: list[threading.Thread] = []

    def load(folder: Path, variant: str | None) -> OnnxModel:
        threads.append(threading.current_thread())
        return opened(folder, variant)

    monkeypatch.setattr(gptcore.models, "load_model", load)
    return threads


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Copies of a model under other names."""
    for name in NAMES:
        shutil.copytree(NANO, tmp_path / name)
        write_facts(tmp_path / name, replace(read_facts(NANO), name=name))
    return [tmp_path / name for name in NAMES]


def get(models: Models, *names: str) -> list[OnnxModel]:
    """Ask for models one after the other."""
    return [asyncio.run(models.get(name)) for name in names]


def room_for(n: float) -> float:
    return n * needed_bytes(NANO, read_facts(NANO))


def test_who_was_not_needed_for_longest_makes_room(nano: OnnxModel, folders: list[Path]) -> None:
    models = Models(nano, folders, room_for(3))
    assert models.names == [nano.bundle.name, *NAMES] and [*models.open] == [nano.bundle.name]
    one, two = map(weakref.ref, get(models, "one", "two"))
    assert get(models, "one") == [one()]
    get(models, "three")
    gc.collect()
    assert two() is None and one() is not None  # its memory is free again
    assert [*models.open] == [nano.bundle.name, "one", "three"]
    get(models, "two", "three")
    assert [*models.open] == [nano.bundle.name, "three", "two"]


def test_a_model_that_writes_is_not_closed(nano: OnnxModel, folders: list[Path]) -> None:
    models, stop = Models(nano, folders, room_for(2)), Event()
    (one,) = get(models, "one")
    for seed in range(32):  # some of them are long
        wanted = Request([5, 8], Sampling(temperature=2.0, seed=seed), 10**6, slide=True)
        one.engine.submit(wanted, stop, lambda piece: None)
    with pytest.raises(Busy, match="memory is full"):
        get(models, "two")
    stop.set()
    until(lambda: not one.engine.n_running)
    get(models, "two")
    assert [*models.open] == [nano.bundle.name, "two"]


def test_an_odd_folder_is_told_once_and_closes_nothing(
    nano: OnnxModel, folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A hand has written what this version does not know."""
    odd, other, good = folders
    for folder, sampling in ((odd, {"max_tokens": 300}), (other, {"top_k": float("inf")})):
        write_facts(folder, replace(read_facts(NANO), name=folder.name, sampling=sampling))
    models = Models(nano, [], room_for(3), within=good.parent)
    for _ in range(2):
        models.look()
    assert models.names == [nano.bundle.name, "three"]
    told = capsys.readouterr().err
    assert told.count("not served") == 2 and "max_tokens" in told and "top_k" in told
    shown = {model["name"].partition("@")[0] for model in page_facts(models, None)["models"]}
    assert shown == {*models.names}
    (odd / "gptcore.json").unlink()
    (odd / "gptcore.json").mkdir()
    assert "cannot be read" in find_models(odd.parent)[1][0]


def test_a_folder_of_half_precision_alone_opens_on_the_cpu(folders: list[Path]) -> None:
    folder = folders[0]
    facts = read_facts(folder)
    (folder / VARIANTS["fp32"]).rename(folder / VARIANTS["fp16"])
    known = {n: h for n, h in facts.sha256.items() if not n.startswith("onnx/")}
    half = {VARIANTS["fp16"]: facts.sha256[VARIANTS["fp32"]]}
    for path in (folder / "onnx").iterdir():
        if path.name != "model_fp16.onnx":
            path.unlink()
    write_facts(folder, replace(facts, sha256=known | half))
    assert load_model(folder, threads=1, device="cpu").variant == "fp16"


def test_a_model_that_never_fits_is_named(nano: OnnxModel, folders: list[Path]) -> None:
    with pytest.raises(NotOpened, match=r"one needs .* GB beside .* --memory allows"):
        get(Models(nano, folders, room_for(1.5)), "one")


def test_a_model_counts_with_the_file_that_is_open(folders: list[Path]) -> None:
    """A large one in 8 bits leaves the room that its fp32 file would have taken."""
    facts = read_facts(NANO)
    eight = needed_bytes(NANO, facts, "int8")
    assert eight < needed_bytes(NANO, facts) == needed_bytes(NANO, facts, "fp32")
    models = Models(opened(NANO, "int8"), folders, 2 * eight + 1)
    with pytest.raises(UserError, match="--memory allows"):
        get(models, "one")  # its largest file may be the fastest one
    get(models, "one@int8")
    assert [model.n_bytes for model in models.open.values()] == [eight, eight]


def test_strangers_are_told_that_a_folder_is_damaged_and_not_where_it_is(
    nano: OnnxModel, folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    models = Models(nano, folders, room_for(4))
    (folders[0] / "config.json").write_text("changed")
    (folders[1] / "gptcore.json").write_text("{")
    for name, folder in zip(NAMES[:2], folders):
        with pytest.raises(NotOpened, match=f"{name} cannot be opened now") as no:
            get(models, name)
        assert str(folder.parent) not in str(no.value)
        assert str(folder) in capsys.readouterr().err  # whoever is at this machine learns why
    assert get(models, "three")


def test_a_crowd_opens_a_model_once(
    nano: OnnxModel, folders: list[Path], loaded: list[threading.Thread]
) -> None:
    models = Models(nano, folders, room_for(4))

    async def crowd() -> list[OnnxModel]:
        return await asyncio.gather(*(models.get(name) for name in NAMES * 20))

    assert len(set(asyncio.run(crowd()))) == len(NAMES) == len(loaded)
    assert len(set(loaded)) == 1 and loaded[0] != threading.current_thread()


def test_folders_of_equal_names_are_told_apart(nano: OnnxModel, folders: list[Path]) -> None:
    for folder in folders[1:]:
        write_facts(folder, replace(read_facts(NANO), name="one"))
    models = Models(nano, [NANO, *folders], room_for(4))
    assert models.names == [nano.bundle.name, *NAMES]  # the first model's own folder once


def test_a_folder_whose_names_are_all_taken_gets_a_number(
    nano: OnnxModel, folders: list[Path], tmp_path: Path
) -> None:
    """An export is called after its folder, so that x/one and y/one have the same names."""
    shutil.copytree(folders[0], tmp_path / "elsewhere" / "one")
    models = Models(opened(folders[0]), [tmp_path / "elsewhere" / "one"], room_for(4))
    assert models.add(folders[1]) == "two" and models.names == ["one", "one-2", "two"]
    assert len({id(model) for model in get(models, *models.names)}) == 3


def test_the_first_model_may_be_exported_again(folders: list[Path]) -> None:
    """It is opened in the format that was chosen, and is not bound by the memory of the others."""
    first = opened(folders[0], "int8")
    models = Models(first, folders, room_for(3), variant="int8")
    (two,) = get(models, "two")
    export_again(folders[0])
    assert models.add(folders[0]) == "one"
    (one,) = get(models, "one")
    assert one is not first and one.variant == "int8" and get(models, "one", "two") == [one, two]
    models.memory = 1
    export_again(folders[0])
    get(models, "one")
    assert [*models.open] == ["one"]  # what rests has made room


def test_a_folder_that_is_exported_again_is_noticed_while_it_is_open(
    nano: OnnxModel, folders: list[Path]
) -> None:
    """What Inspect opens later is of the same export, and so is what the page tells."""
    models = Models(nano, folders, room_for(5), within=folders[0].parent)
    one, eight, two = get(models, "one", "one@int8", "two")
    export_again(folders[0])
    again = get(models, "one", "one@int8")
    assert one not in again and eight not in again
    assert again[0].bundle.facts == again[1].bundle.facts == read_facts(folders[0])
    assert get(models, "one", "one@int8", "two") == [*again, two]
    export_again(folders[1], sampling={"temperature": 0.25})
    (shown,) = (facts for facts in page_facts(models, None)["models"] if facts["name"] == "two")
    assert shown["settings"][0]["default"] == 0.25
    shutil.rmtree(folders[0])
    assert get(models, "one") == again[:1]  # what is open answers on


@pytest.mark.parametrize(
    ("damaged", "is_looked_at"), [("gptcore.json", False), ("config.json", True)]
)
def test_a_damaged_export_takes_nothing_down_that_is_open(
    nano: OnnxModel,
    folders: list[Path],
    damaged: str,
    is_looked_at: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    models = Models(nano, folders, room_for(4), within=folders[0].parent)
    (one,) = get(models, "one")
    export_again(folders[0])
    (folders[0] / damaged).write_text("{")
    if is_looked_at:
        models.look()
    for _ in range(3):
        assert get(models, "one") == [one]
        models.look()
    told = capsys.readouterr().err
    assert told.count(damaged) == 1, "it is told once"
    assert told.startswith("served as before" if is_looked_at else "one cannot be opened")
    with pytest.raises(NotOpened):
        get(models, "one@int8")
    shutil.rmtree(folders[0])
    shutil.copytree(folders[1], folders[0])
    (again,) = get(models, "one")
    assert again is not one and again.bundle.facts == read_facts(folders[1])


def test_a_model_stays_until_its_new_export_is_known_to_open(
    folders: list[Path],
    loaded: list[threading.Thread],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, eight = opened(folders[0], "int8"), folders[0] / VARIANTS["int8"]
    models = Models(first, [], room_for(4), variant="int8")
    eight.rename(tmp_path / "aside")
    export_again(folders[0])
    assert get(models, "one", "one") == [first, first] and len(loaded) == 1
    assert "has no variant 'int8'" in capsys.readouterr().err
    (tmp_path / "aside").rename(eight)
    export_again(folders[0])
    assert get(models, "one") != [first]


def test_an_export_that_ends_while_the_first_model_is_opened_is_noticed(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(folder: Path, variant: str | None) -> OnnxModel:
        model = opened(folder, variant)
        export_again(folder)
        return model

    with monkeypatch.context() as patch:
        patch.setattr(gptcore.models, "load_model", load)
        (tmp_path / "none").mkdir()
        options = Namespace(model=folders[0], models=tmp_path / "none", variant=None, memory=4)
        models = load_models(options)
    assert get(models, "one")[0].bundle.facts == read_facts(folders[0])


def test_a_shared_server_offers_no_other_model_unless_it_is_told(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them may have learned somebody's private chats."""
    (tmp_path / "models").mkdir()
    for folder in folders:
        folder.rename(tmp_path / "models" / folder.name)
    monkeypatch.chdir(tmp_path)
    options = Namespace(model=Path("models/one"), models=None, variant=None, memory=4)
    assert len(load_models(options).names) == len(folders)
    shared = load_models(options, is_shared=True)
    assert shared.names == ["one"] and shared.within is None
    options.models = Path("models")
    assert len(load_models(options, is_shared=True).names) == len(folders)


def test_a_memory_that_would_bound_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="--memory nan: choose a number of GB"):
        load_models(Namespace(model=NANO, models=None, variant=None, memory=float("nan")))


def test_a_model_that_somebody_waits_for_makes_no_room(
    nano: OnnxModel, folders: list[Path]
) -> None:
    """It has no reply yet to go on with, but whoever asked for it holds its memory."""
    models = Models(nano, folders, room_for(2))

    async def both() -> list[OnnxModel | BaseException]:
        asked = [asyncio.ensure_future(models.get(name)) for name in ("one", "two")]
        await asyncio.sleep(0)  # both wait for the loader's thread
        models.loader.shutdown()  # which ends before anybody receives what it opened
        return await asyncio.gather(*asked, return_exceptions=True)

    one, two = asyncio.run(both())
    assert isinstance(one, OnnxModel) and isinstance(two, Busy)
    assert [*models.open] == [nano.bundle.name, "one"]


def export_again(folder: Path, **changed: Any) -> None:
    facts = read_facts(folder)
    measured = facts.measured | {"again": facts.measured.get("again", 0.0) + 1.0}
    write_facts(folder, replace(facts, measured=measured, **changed))


def test_a_folder_is_the_same_by_every_path_to_it(
    nano: OnnxModel, folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(nano, folders, room_for(4))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(folders[0])
    assert models.add(Path("two")) == "two" and models.add(Path("link")) == "one"
    assert models.names == [nano.bundle.name, *NAMES]


def test_a_name_with_the_sign_of_a_format_is_a_models_own(
    nano: OnnxModel, folders: list[Path]
) -> None:
    for folder in folders[:2]:
        write_facts(folder, replace(read_facts(NANO), name="one@int8"))
    write_facts(folders[2], replace(read_facts(NANO), name="one"))
    models = Models(nano, folders, room_for(5))
    assert models.names == [nano.bundle.name, "one@int8", "two", "one"]
    own, eight = get(models, "one@int8", "one@q8")
    assert own.bundle.path.name == "one" and eight.bundle.path.name == "three"
    models = Models(nano, [folders[2], folders[0]], room_for(5))
    assert models.names == [nano.bundle.name, "one", "one-2"]
    assert get(models, "one@int8")[0].bundle.path.name == "three"


def test_a_model_that_is_exported_later_is_found(
    nano: OnnxModel, folders: list[Path], tmp_path: Path
) -> None:
    models = Models(nano, folders[:1], room_for(3), within=tmp_path)
    shutil.copytree(folders[1], tmp_path / ".four.tmp")  # an export that has not ended
    models.look()
    assert models.names == [nano.bundle.name, "one", "three", "two"]
    (tmp_path / ".four.tmp").rename(tmp_path / "four")
    names = [facts["name"] for facts in page_facts(models, None)["models"]]
    assert "four" in names and models.names.count("two") == 1
    get(models, "four")
    shutil.rmtree(tmp_path)
    models.look()  # what is gone is told when it is asked for


def test_no_model_but_a_folder_is_said(folders: list[Path], tmp_path: Path) -> None:
    (folders[1] / "gptcore.json").write_text("{")
    shutil.copytree(TINY / "translator", tmp_path / "four")
    (tmp_path / "notes").mkdir()
    found, others = find_models(tmp_path)
    assert found == [folders[0], folders[2]]
    assert "four: a translation model" in others[0] and "two" in others[1] and len(others) == 2
    with pytest.raises(UserError, match=r"no folder of models.*--models"):
        find_models(tmp_path / "nowhere")


def test_the_api_answers_as_the_model_that_is_named(
    nano: OnnxModel, folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    models = Models(nano, folders, room_for(3))
    with served(models, Access()) as url:

        def ask(name: str | None, path: str = "chat/completions") -> requests.Response:
            body = {"model": name, "messages": HELLO, "temperature": 0, "max_tokens": 8}
            return requests.post(f"{url}/v1/{path}", json=body, timeout=SECONDS)

        cards = requests.get(f"{url}/v1/models", timeout=SECONDS).json()["data"]
        assert [card["id"] for card in cards] == models.names
        replies = {name: ask(name).json() for name in (None, *NAMES)}
        assert [reply["model"] for reply in replies.values()] == models.names
        assert len({reply["choices"][0]["message"]["content"] for reply in replies.values()}) == 1
        assert "'one'" in error_of(ask("four"), 404)
        shutil.rmtree(folders[0])  # gone while it is not open: the others answer on
        told = error_of(ask("one"), 503)
        assert "one" in told and str(folders[0]) not in told
        assert str(folders[0]) in capsys.readouterr().err
        assert ask("two").ok and ask(None).ok
        shown = requests.get(f"{url}/metrics", timeout=SECONDS).text
        assert 'gptcore_replies_total{model="two"} ' in shown
        document = requests.get(f"{url}/v1/openapi.json", timeout=SECONDS).json()
        assert json.dumps([*models.offered, None]) in json.dumps(document)


def test_the_api_finds_a_model_that_is_exported_later(
    nano: OnnxModel, folders: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "later").mkdir()
    models = Models(nano, [], room_for(4), within=tmp_path / "later")
    with served(models, Access()) as url:
        for folder in folders[:2]:
            shutil.move(folder, tmp_path / "later")
            if folder.name == "one":
                body = {"model": "one", "messages": HELLO, "max_tokens": 1}
                assert requests.post(f"{url}/v1/chat/completions", json=body, timeout=SECONDS).ok
        cards = requests.get(f"{url}/v1/models", timeout=SECONDS).json()["data"]
        assert [card["id"] for card in cards] == [nano.bundle.name, "one", "two"]


def test_a_name_that_is_no_name_is_not_here(nano: OnnxModel) -> None:
    models = Models(nano)
    for name in ("", "../nano", 5, ["one"], {"a": 1}):
        with pytest.raises(NotHere, match="is not here"):
            models.check(name)
    assert models.check(None) == models.check(nano.bundle.name) == nano.bundle.name


def test_a_folders_name_means_its_model(nano: OnnxModel, folders: list[Path]) -> None:
    write_facts(folders[2], replace(read_facts(NANO), name="Three of them"))
    models = Models(nano, folders, room_for(9))
    assert models.names == [nano.bundle.name, "one", "two", "Three of them"]
    assert models.check("three") == "Three of them" and models.check(NANO.name) == models.names[0]
    assert get(models, models.check("three")) == get(models, "Three of them")
    write_facts(folders[1], replace(read_facts(NANO), name="three"))
    models = Models(nano, folders, room_for(9))  # a model that is called so takes precedence
    assert models.check("three") == "three"
    assert models.check(f"{NANO.name}@q8") == f"{nano.bundle.name}@q8"


def test_a_name_may_be_followed_by_a_number_format(nano: OnnxModel, folders: list[Path]) -> None:
    models = Models(nano, folders, room_for(9))
    assert models.names == [nano.bundle.name, *NAMES]
    assert models.asked("one@int8") == (models.offers["one"], "int8")
    assert models.check("one@int8") == "one@int8"
    for name in ("one@", "one@q2", "@int8", "none@int8"):
        with pytest.raises(NotHere):
            models.check(name)
    facts = page_facts(models, None, "one@int8")  # what a page opens with by such an address
    assert facts["name"] == "one@int8" and facts["others"] == []
    whole, eight = get(models, "one@fp32", "one@int8")
    assert (whole.variant, eight.variant) == ("fp32", "int8")
    assert get(models, "one@int8") == [eight]
