"""Train on the page, in a real browser: from a file to a chat with the model of it."""

import re
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from conftest import SCREENSHOTS, Visit
from in_browser import enter, give, press, serve_train, shop, status, talk
from playwright.sync_api import Page, Route, expect

pytestmark = pytest.mark.slow

LONG_MS = 120_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def url(home: Path, serve: Callable[..., str]) -> str:
    return serve_train(serve, home)


@pytest.fixture(autouse=True)
def no_texts(home: Path) -> None:
    shutil.rmtree(home / "runs" / ".page" / "texts", ignore_errors=True)  # of a test that failed


def test_a_table_becomes_a_model_that_the_page_talks_with(page: Page, home: Path) -> None:
    talk(page, "Hello!")  # the chat that was open last is with another model
    enter(page, "Train")
    give(page, ("shop.csv", shop()))
    look = page.get_by_label("What is in the texts")
    expect(look).to_contain_text("96 conversations")
    expect(look).to_contain_text("assistant: «")  # a sample, the learned part marked
    page.get_by_role("spinbutton", name="Minutes").fill("0.25")
    page.get_by_label("Name of the model").fill("shop")
    page.get_by_label("Columns").evaluate("field => field.dispatchEvent(new Event('change'))")
    press(page, "Plan")  # waits for the look that has just begun
    planned = page.get_by_label("Plan", exact=True)
    expect(planned).to_contain_text("passes over the text", timeout=LONG_MS)
    expect(page.locator(".train .notice")).to_be_hidden()
    assert not (home / "runs" / "shop").exists(), "a plan trains nothing"
    page.screenshot(path=SCREENSHOTS / "train-plan.png")
    minutes = page.get_by_role("spinbutton", name="Minutes")
    minutes.fill("60")
    with page.expect_response("**/train/state"):
        expect(planned).to_be_hidden()  # it is of other minutes
    page.get_by_label("Name of the model").fill("no/name")
    press(page, "Train")
    expect(page.locator(".train .notice")).to_contain_text("letters")
    page.errors.clear()  # the browser tells of an answer that refuses
    expect(planned).to_be_hidden()  # what is refused brings no old plan back
    page.get_by_label("Name of the model").fill("shop")
    minutes.fill("0.25")
    expect(planned).to_be_hidden()

    press(page, "Train")
    expect(status(page)).to_contain_text("left", timeout=LONG_MS)
    expect(page.locator(".train svg.loss polyline.learned")).to_be_visible(timeout=LONG_MS)
    press(page, "Stop")  # before its quarter of a minute is over
    page.screenshot(path=SCREENSHOTS / "train-curve.png")
    expect(page.locator(".train svg.loss")).to_contain_text("bits per byte, logarithmic")
    expect(status(page)).to_contain_text("stopped and saved", timeout=LONG_MS)

    page.reload()  # all is as it was, and in the same room
    expect(status(page)).to_contain_text("stopped and saved")
    press(page, "Go on")
    expect(status(page)).not_to_contain_text("left")  # until there is a new step
    expect(status(page)).to_contain_text("complete", timeout=LONG_MS)
    page.get_by_text("What the command says").click()
    said = page.locator(".train details pre").last
    expect(said).to_contain_text("96 conversations")  # of the first part
    expect(said).to_contain_text("saved step")
    expect(said).to_contain_text("done; next")
    sample = page.locator(".samples p")
    expect(sample.first).to_contain_text("You")
    expect(sample.nth(1)).to_contain_text("Model")
    expect(page.locator(".train > pre")).to_contain_text("tokens could be set aside")
    assert not (home / "runs" / ".page" / "texts").exists(), "the texts are deleted"
    assert not (home / "runs" / ".page" / "shards").exists()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Report").click()
    expect(opened.value.locator("svg").first).to_be_visible()  # its script runs under the policy
    opened.value.close()

    press(page, "Chat with it")
    expect(page).to_have_url(re.compile(r"\?model=shop$"), timeout=LONG_MS)
    expect(page.get_by_label("Model", exact=True)).to_have_value("shop")
    [answer] = talk(page, "Is the red lamp in stock?")
    assert "in stock" in answer
    page.get_by_role("button", name="Hello!").first.click()  # the address follows the chat
    expect(page.locator("#model")).not_to_have_value("shop")
    page.reload()
    expect(page.locator(".message.user")).to_have_text(["Hello!"])
    expect(page.locator("#model")).not_to_have_value("shop")
    facts = home / "models" / "shop" / "gptcore.json"
    written = facts.stat().st_mtime_ns

    enter(page, "Train")
    expect(status(page)).to_contain_text("complete")
    expect(status(page)).not_to_contain_text("takes about a minute")
    press(page, "Chat with it")  # at once: the model is as new as the run
    expect(page.locator("#model")).to_have_value("shop")  # a reply has the label, too
    assert facts.stat().st_mtime_ns == written

    enter(page, "Train")
    press(page, "Keep it, and begin another")
    expect(page.get_by_label("Name of the model")).not_to_have_value("shop")  # the next one's
    assert (home / "runs" / "shop" / "summary.json").is_file()

    give(page, ("more.csv", shop()))  # and the next one may begin with what this one knows
    page.get_by_label("Begin with").select_option(label="shop")
    expect(planned).to_be_hidden()
    press(page, "Plan")
    expect(planned).to_contain_text("passes over the text", timeout=LONG_MS)
    page.screenshot(path=SCREENSHOTS / "train-further.png", full_page=True)
    page.get_by_label("Begin with").select_option("")
    press(page, "Remove more.csv")


def test_little_talk_begins_with_the_model_that_ships_until_a_person_chooses(page: Page) -> None:
    suggested = {"value": ""}

    def answer(route: Route) -> None:
        starts = {"default": {"name": "gptcore chat"}, "nano": {"name": "gptcore nano"}}
        changed = {"starts": starts, "start": suggested["value"], "missing": ""}
        route.fulfill(json=route.fetch().json() | changed)

    page.route("**/train/state", answer)
    enter(page, "Train")
    start = page.get_by_label("Begin with")
    expect(start.locator("option")).to_have_text(["a new model", "gptcore chat", "gptcore nano"])
    expect(start).to_have_value("")
    suggested["value"] = "default"  # once the files were looked at
    expect(start).to_have_value("default")
    start.select_option("")
    page.wait_for_timeout(1500)  # the server is asked meanwhile
    expect(start).to_have_value("")
    page.get_by_role("button", name="中文").click()
    page.wait_for_timeout(1500)
    expect(page.locator("#train-start")).to_have_value("")


def test_an_export_says_in_words_what_it_does(page: Page) -> None:
    doing = {"doing": "export", "said": "", "missing": ""}
    page.route("**/train/state", lambda route: route.fulfill(json=route.fetch().json() | doing))
    enter(page, "Train")
    for doing["said"], shown in (
        ("starting PyTorch: 00:01", "opening the model"),
        ("writing the graph and the weights: 00:04", "writing its files"),
        ("PyTorch: logits and cache:  41%|██▊| 7/17", "computing with PyTorch"),
        (
            "ONNX Runtime: logits and cache:  92%|██▊| 74/80 [00:17<00:02]",
            "comparing it with PyTorch",
        ),
        ("cached equals uncached:  50%|█| 9/18 [00:01]", "writing with it, token by token"),
        ("exporting runs/mine to models/mine", ""),
    ):
        begun = "Making a model folder of it, which takes about a minute …"
        expect(status(page)).to_have_text(f"{begun} {shown}")


def test_the_time_left_is_said_in_words(page: Page) -> None:
    run = {"path": "runs/book", "step": 2, "steps": 9, "bits_per_byte": None}
    run |= {"loss": [], "held_out": [], "samples": None, "findings": []}
    run |= {"is_measuring": False, "is_chat": True, "is_saved": False, "is_complete": False}
    doing = {"doing": "train", "is_stepping": True, "run": run}
    page.route("**/train/state", lambda route: route.fulfill(json=route.fetch().json() | doing))
    run["left_s"] = 0.9
    enter(page, "Train")
    for run["left_s"], shown in (
        (0.9, "a moment left"),
        (1.2, "1 second left"),
        (89, "89 seconds left"),
        (95, "2 minutes left"),
    ):
        expect(status(page)).to_have_text(f"step 2 of 9 · {shown}")


def test_the_keys_that_go_through_the_datasets_download_none(page: Page) -> None:
    asked: list[str] = []

    def fetch(route: Route) -> None:
        asked.append(route.request.post_data_json["dataset"])
        route.fulfill(json=state)

    page.route("**/train/fetch", fetch)
    with page.expect_response("**/train/state") as answer:
        enter(page, "Train")
    state = answer.value.json()
    datasets, download = page.locator("#dataset"), page.get_by_role("button", name="Download")
    expect(datasets.locator("option")).not_to_have_count(1)
    expect(download).to_be_disabled()
    datasets.focus()
    for _ in range(2):
        datasets.press("ArrowDown")
    page.wait_for_timeout(1500)  # the server is asked meanwhile
    chosen = datasets.input_value()
    assert chosen and not asked
    press(page, "Download")
    expect(download).to_be_enabled()
    assert asked == [chosen]


def test_why_a_download_failed_is_said_until_something_else_is_done(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chat.jsonl.gz").write_text("damaged")
    monkeypatch.setenv("GPTCORE_DATA", str(tmp_path))
    enter(page, "Train")
    give(page, ("shop.csv", shop()))
    expect(page.get_by_label("What is in the texts")).to_contain_text("96 conversations")
    page.locator("#dataset").select_option("jokes")
    press(page, "Download")
    notice = page.locator(".train .notice")
    expect(notice).to_contain_text("chat.jsonl.gz", timeout=LONG_MS)
    for _ in range(2):  # the server is asked meanwhile
        with page.expect_response("**/train/state"):
            pass
    expect(notice).to_contain_text("chat.jsonl.gz")
    page.reload()
    expect(notice).to_contain_text("chat.jsonl.gz")
    expect(page.locator(".texts li")).to_have_count(1)
    press(page, "Remove shop.csv")
    expect(notice).to_be_hidden()


def test_nothing_is_offered_before_the_server_is_heard(page: Page) -> None:
    page.route("**/train/state", lambda route: None)
    enter(page, "Train")
    expect(page.locator(".train progress")).to_be_visible()
    expect(page.locator(".train :is(button, input, pre, a):visible")).to_have_count(0)


def test_a_model_of_books_writes_and_what_its_curves_mean_is_said(page: Page) -> None:
    def answer(route: Route) -> None:
        curve = {"loss": [[1, 7.0], [2, 2.0]], "held_out": [[1, 3.0], [2, 4.0]]}
        run = {"path": "runs/book", "step": 2, "steps": 2, "left_s": 0, "bits_per_byte": 3.0}
        run |= {"samples": {"step": 1, "written": [["It was", "a night."]]}}
        remedy = "--init models/default --lora 16"
        run |= {"findings": [{"text": "It learns by heart.", "remedy": remedy}]}
        run |= {"is_measuring": False, "is_chat": False}
        run |= {"is_saved": True, "is_complete": True}
        state = {"run": run | curve, "starts": {"default": {"name": "gptcore chat"}}}
        route.fulfill(json=route.fetch().json() | state)

    page.route("**/train/state", answer)
    enter(page, "Train")
    expect(status(page)).to_contain_text("3 bits per byte")  # of the weights that are taken
    expect(status(page)).to_contain_text("“Write with it” first makes a model folder of it, which")
    try_it = "try “Begin with”: gptcore chat, “Small adapters only (LoRA)”"  # as they are listed
    expect(page.locator(".train > pre")).to_have_text(f"It learns by heart.\n  {try_it}")
    expect(page.locator(".samples")).to_contain_text("model of step 1 writes")
    expect(page.locator(".samples blockquote")).to_have_text("It was a night.")
    expect(page.get_by_role("heading", name="Training of")).to_be_visible()
    expect(page.locator(".train svg.loss")).to_contain_text("bits per byte")
    expect(page.locator(".train").get_by_role("button", name="Write with it")).to_be_visible()


@pytest.mark.parametrize(("loss", "n_charts"), [([[1, 7.0]], 0), ([[1, 7.0], [2, 5.0]], 1)])
def test_a_curve_is_drawn_from_two_points_and_named_if_it_is_there(
    page: Page, loss: list, n_charts: int
) -> None:
    def answer(route: Route) -> None:
        run = {"path": "runs/book", "step": 2, "steps": 9, "left_s": 9, "bits_per_byte": None}
        run |= {"loss": loss, "held_out": [], "samples": None, "findings": []}
        run |= {"is_measuring": False, "is_chat": True, "is_saved": False, "is_complete": False}
        route.fulfill(json=route.fetch().json() | {"run": run})

    page.route("**/train/state", answer)
    enter(page, "Train")
    expect(page.get_by_role("heading", name="Training of")).to_be_visible()
    expect(page.locator(".train svg.loss")).to_have_count(n_charts)
    expect(page.locator(".train figcaption i")).to_have_count(n_charts)  # nothing is held out yet
    expect(page.get_by_role("link", name="Report")).to_be_hidden()


def test_a_training_that_is_kept_unfinished_is_not_lost_from_sight(page: Page) -> None:
    def answer(route: Route) -> None:
        run = {"path": "runs/book", "step": 2, "steps": 9, "left_s": 9, "bits_per_byte": None}
        run |= {"loss": [], "held_out": [], "samples": None, "findings": []}
        run |= {"is_measuring": False, "is_chat": True, "is_saved": True, "is_complete": False}
        route.fulfill(json=route.fetch().json() | {"run": run})

    page.route("**/train/state", answer)
    enter(page, "Train")
    expect(status(page)).to_contain_text("stopped and saved")
    press(page, "Keep it, and begin another")
    command = "python -m training --out runs/book --resume"
    expect(page.locator(".train .notice")).to_contain_text(
        f"runs/book is kept. In a terminal it goes on: {command}"
    )
    page.route("**/train/state", lambda route: route.abort())
    expect(status(page)).to_have_text("")  # nothing is known of a server that is gone


def test_what_was_said_of_the_last_files_is_not_said_of_the_next_ones(page: Page) -> None:
    run = {"path": "runs/book", "step": 2, "steps": 9, "left_s": 9, "bits_per_byte": None}
    run |= {"loss": [], "held_out": [], "samples": None, "findings": []}
    run |= {"is_measuring": False, "is_chat": True, "is_saved": True, "is_complete": True}
    changed = {"run": run, "me": "Ann"}
    held: list[Route] = []
    page.route("**/train/clear", lambda route: held.append(route))
    page.route("**/train/state", lambda route: route.fulfill(json=route.fetch().json() | changed))
    enter(page, "Train")
    press(page, "Keep it, and begin another")
    for _ in range(2):  # the server is asked while it clears
        with page.expect_response("**/train/state") as answer:
            pass
    changed.update(run=None, me="")
    held[0].fulfill(json=answer.value.json() | changed)
    expect(page.locator(".drop")).to_be_visible()
    expect(page.locator("#train-me")).to_have_value("")


def whatsapp() -> bytes:
    """A chat of two people."""
    line = "[01.03.24, 10:0{i}:00] {name}: Hello, this is message {i}.\n"
    return "".join(line.format(i=i, name=("Ann", "Ben")[i % 2]) for i in range(10)).encode()


def drop(page: Page, path: Path) -> None:
    devtools = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    area = page.locator(".drop").bounding_box()
    assert area
    for kind in ("dragEnter", "dragOver", "drop"):
        at = {"x": area["x"] + 20, "y": area["y"] + 10}
        devtools.send("Input.dispatchDragEvent", {"type": kind, **at, "data": data})


def test_nonsense_gets_a_line_and_can_be_removed(page: Page, tmp_path: Path) -> None:
    enter(page, "Train")
    train = page.locator(".train").get_by_role("button", name="Train", exact=True)
    give(page, ("photo.png", b"\x89PNG\r\n\x1a\n" + bytes(200)), ("white.txt", b" "))
    expect(page.locator(".texts li").nth(0)).to_contain_text("not used: it is a PNG picture")
    expect(page.locator(".texts li").nth(1)).to_contain_text("not used: it holds nothing but")
    expect(page.get_by_text("so Train waits")).to_be_visible()
    expect(page.locator(".train .notice")).to_be_hidden()  # each reason stands beside its file
    give(page, ("photo.png", b"again"), ("empty.txt", b""))
    expect(page.locator(".texts li").nth(0)).to_contain_text("not used: it is empty")
    expect(page.locator(".train .notice")).to_contain_text("photo.png is among the texts already")
    expect(train).to_be_disabled()
    drop(page, tmp_path)
    expect(page.locator(".train .notice")).to_contain_text("cannot be read: drop files")
    give(page, ("shop.csv", shop()))
    expect(page.get_by_text("3 files are not used")).to_be_visible()
    expect(train).to_be_enabled()
    for name, told in (("my model!", "holds !"), ("../x", "holds /"), ("", "is empty")):
        page.get_by_label("Name of the model").fill(name)
        press(page, "Train")
        expect(page.locator(".train .notice")).to_contain_text(told)
    page.get_by_label("Name of the model").fill("mine")
    page.errors.clear()  # the browser tells of an answer that refuses
    for name in ("white.txt", "empty.txt", "shop.csv", "photo.png"):
        page.get_by_role("button", name=f"Remove {name}").click()
        expect(page.get_by_role("button", name=f"Remove {name}")).to_have_count(0)
    expect(page.locator(".train .texts li")).to_have_count(0)
    page.once("dialog", lambda dialog: dialog.dismiss())
    expect(page.locator(".train").get_by_role("button", name="Train", exact=True)).to_be_disabled()


def test_packed_files_that_are_not_used_are_told_and_counted_as_in_the_look(page: Page) -> None:
    enter(page, "Train")
    packed = BytesIO()
    picture = b"\x89PNG\r\n\x1a\n" + bytes(200)
    with ZipFile(packed, "w") as archive:
        for name, data in (("shop.csv", shop()), ("a.png", picture), ("b.png", picture)):
            archive.writestr(name, data)
    give(page, ("all.zip", packed.getvalue()), ("white.txt", b" "), ("_chat.txt", whatsapp()))
    row = page.locator(".texts li", has_text="all.zip")
    expect(row).to_contain_text("a.png and others in it, 2 in all, are not used: it is a PNG")
    expect(row.locator(".refused")).to_have_count(1)
    expect(page.get_by_text("4 files are not used")).to_be_visible()  # a chat that waits, too
    expect(page.get_by_label("What is in the texts")).to_contain_text("4 of 5 files are not used")
    for name in ("all.zip", "white.txt", "_chat.txt"):
        press(page, f"Remove {name}")


def test_a_whatsapp_chat_asks_whose_words_are_learned(page: Page) -> None:
    enter(page, "Train")
    give(page, ("_chat.txt", whatsapp()))
    expect(page.get_by_text("Whose words should the model learn?")).to_be_visible()
    # In the page's own words: those of the command name an option and a remedy for a terminal.
    expect(page.locator(".texts li small").last).to_have_text(
        "waits for the answer to the question below"
    )
    otherwise = page.get_by_text("If a file is no chat: rename a text so that it ends in .log")
    expect(otherwise).to_be_visible()
    expect(page.locator(".train :is(.notice, .refused):visible")).to_have_count(0)  # a question
    give(page, ("shop.csv", shop()))  # which could be learned without the chat
    expect(page.get_by_label("What is in the texts")).to_contain_text("shop.csv")
    train = page.locator(".train").get_by_role("button", name="Train", exact=True)
    expect(train).to_be_disabled()
    expect(train).to_have_attribute("title", re.compile("choose first whose words"))
    page.get_by_text("More about the files").click()
    field = page.get_by_label("Whose words are learned")
    press(page, "Ben")  # who writes in it is offered
    expect(train).to_be_enabled()
    expect(field).to_have_value("Ben")
    expect(page.get_by_label("What is in the texts")).to_contain_text("conversation")
    expect(otherwise).to_be_hidden()
    expect(page.get_by_role("button", name="Ben", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    expect(page.get_by_role("button", name="Ben", exact=True)).to_be_focused()
    field.fill("Ann; Cleo")  # or typed: somebody may have another name in another chat
    field.press("Tab")
    expect(page.get_by_role("button", name="Ann", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    expect(page.get_by_label("What is in the texts")).to_contain_text("chat of Ann")
    press(page, "Remove _chat.txt")
    expect(field).to_have_value("Ann; Cleo")
    press(page, "Remove shop.csv")
    expect(field).to_have_value("")  # the next texts are of others


def test_what_is_typed_stays_in_another_room_and_in_another_language(page: Page) -> None:
    enter(page, "Train")
    name = page.locator("#train-name")
    expect(name).not_to_have_value("")
    name.fill("tales")
    page.locator("[data-room='room.chat']").click()
    enter(page, "Train")
    page.wait_for_timeout(1500)  # the server is asked meanwhile
    expect(name).to_have_value("tales")
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", name="用你自己的文本训练一个模型")).to_be_visible()
    page.wait_for_timeout(1500)
    expect(name).to_have_value("tales")


def test_it_speaks_chinese_and_fits_a_phone(visit: Visit, url: str) -> None:
    page = visit(url, width=390, dark=True, locale="zh-CN")
    enter(page, "训练")
    expect(page.get_by_role("heading", name="用你自己的文本训练一个模型")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.screenshot(path=SCREENSHOTS / "train-zh-390.png")
