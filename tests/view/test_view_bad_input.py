"""What the chat view makes of storage that is forbidden or damaged, of odd files, and of texts that
are made to act."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Visit
from in_browser import box, replies, say, set_number, talk, wait_for_the_end
from playwright.sync_api import Browser, Page, expect

from benchmarks.crowds.servers import free_port, running
from gptcore.model import OnnxModel

pytestmark = pytest.mark.slow

SHOW = """async ([texts, isWhole]) => {
    const load = (path) => import(new URL(`view/${path}`, document.baseURI));
    const { showMarkdown } = await load("chat/markdown.js");
    // which the first code and the first formula would wait for
    await Promise.all(["highlight", "katex"].map((name) => load(`vendor/${name}.min.js`)));
    const boxes = texts.map((text) => {
        const box = document.createElement("div");
        box.className = "body made";
        document.querySelector(".stage").append(box);
        for (let n = isWhole ? text.length : 1; n <= text.length; n += 1)
            showMarkdown(box, text.slice(0, n));
        return box;
    });
    await new Promise((resolve) => setTimeout(resolve, 800));
    return boxes.map((box) => box.innerHTML);
}"""
HOSTILE = [
    "<script>window.ran = 1</script>", "<img src=x onerror='window.ran = 1'>",
    "[a](javascript:window.ran=1)", "[a](data:text/html,<script>window.ran=1</script>)",
    "![x](http://127.0.0.1:1/pixel.png)", "<iframe src=//evil.example></iframe>",
    "<svg onload=window.ran=1>", "<a href=x onclick=window.ran=1>b</a>",
    "$\\href{javascript:window.ran=1}{x}$", "$\\includegraphics{http://127.0.0.1:1/p.png}$",
    "```html\n<img src=x onerror=window.ran=1>\n```", "<style>.gpt{display:none}</style>",
    "<math><mtext></p><img src=x onerror=window.ran=1>", "[x]: javascript:window.ran=1\n\n[x]",
    '<div style="position:fixed;inset:0">', "<form action=//evil.example><input name=a></form>",
]  # fmt: skip


def test_a_text_that_is_made_to_act_does_nothing(page: Page) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    found = page.evaluate(SHOW, [HOSTILE, True])
    assert page.evaluate("window.ran") is None
    assert not [r for r in requests if "evil" in r or "pixel" in r or "p.png" in r]
    for html in found:
        for tag in ("<script", "<img", "<iframe", "<svg onload", "<style", "<form", "<input"):
            assert tag not in html.lower().replace("<svg viewbox", ""), html
    links = page.locator("a").evaluate_all("e => e.map(a => a.href)")
    assert links and "javascript:" not in "".join(links)


def test_markdown_is_drawn_whole_and_piece_by_piece_alike(page: Page) -> None:
    text = (
        "# One\n\nA **b** and `c` and $x^2$ for $5 and $6.\n\n- a\n- b\n\n| a | b |\n|---|---|\n"
        "| 1 | 2 |\n\n```python\nx = 'y'  # z\n```\n\n$$\\frac{1}{2}$$\n\n> q\n\nOn Friday\nat 8\n"
    )
    (whole,), (grown,) = (page.evaluate(SHOW, [[text], is_whole]) for is_whole in (True, False))
    assert whole == grown
    for part in ("<h1", "<strong>b</strong>", "<code>c</code>", "<msup>", "<li>a</li>", "<table>",
                 "hljs-string", "<mfrac>", "<blockquote>", "for $5 and $6",
                 "On Friday<br>at 8"):  # fmt: skip
        assert part in whole, whole


@pytest.fixture
def forbidden(browser: Browser, url: str) -> Iterator[Page]:
    """The page in a browser that forbids it to keep anything."""
    context = browser.new_context()
    refuse = "{ get() { throw new DOMException('denied', 'SecurityError'); } }"
    context.add_init_script(
        f"for (const name of ['indexedDB', 'localStorage'])"
        f" Object.defineProperty(window, name, {refuse});"
    )
    tab = context.new_page()
    tab.goto(url)
    yield tab
    context.close()


def test_without_storage_chats_last_for_the_visit_and_that_is_said(forbidden: Page) -> None:
    expect(forbidden.locator(".list-foot")).to_contain_text("This browser keeps nothing here")
    talk(forbidden, "Hello!")
    forbidden.get_by_role("button", name="New chat").first.click()
    talk(forbidden, "Good evening!")
    forbidden.locator(".chats li").last.locator(".title").click()
    expect(replies(forbidden)).to_have_count(1)
    expect(forbidden.locator(".message.user .body")).to_have_text(["Hello!"])


def test_a_file_of_chats_comes_back_whole(page: Page, tmp_path: Path) -> None:
    talk(page, "Hello!", "My name is Ada.")
    page.locator(".message.assistant").last.get_by_label("Regenerate").click()
    wait_for_the_end(page)
    expect(page.locator(".versions")).to_have_text("2/2")
    before = page.locator(".message .body").all_inner_texts()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    path = tmp_path / "chats.json"
    download.value.save_as(path)
    page.get_by_role("button", name="Delete all").click()
    page.get_by_role("button", name="Delete all chats, for ever").click()
    expect(page.locator(".chats li")).to_have_count(0)
    expect(replies(page)).to_have_count(0)
    page.locator("input[type=file]").set_input_files(path)
    expect(page.locator(".notice")).to_contain_text("1 chat was imported")
    page.locator(".chats li .title").click()
    expect(page.locator(".message .body")).to_have_text(before)
    expect(page.locator(".versions")).to_have_text("2/2")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    again = tmp_path / "again.json"
    download.value.save_as(again)
    assert json.loads(again.read_text()) == json.loads(path.read_text())


def chats(settings: dict, tokens: dict) -> bytes:
    """A file with one chat that is whole but for these."""
    chat = {"version": 1, "id": "a", "title": "", "system": "", "created": 1, "changed": 1,
            "nodes": {}, "chosen": {}, "gone": [], "settings": settings}  # fmt: skip
    listed = [{"chat": chat, "tokens": tokens}]
    return json.dumps({"kind": "gptcore chats", "version": 1, "chats": listed}).encode()


def test_an_odd_file_is_told_and_changes_nothing(page: Page, tmp_path: Path) -> None:
    talk(page, "Hello!")
    for content, told in (  # each is told otherwise than the one before
        (b'{"kind": "gptcore chats", "version": 1, "chats": [{"chat": {"id": 5}}]}', "damaged"),
        (b"\xff\xfe", "holds no chats"),
        (chats({"stop": "x"}, {}), "damaged"),
        (b'{"kind": "gptcore chats", "version": 9, "chats": []}', "another version"),
        (chats({"temperature": "hot"}, {}), "damaged"),
        (b"[]", "holds no chats"),
        (chats({}, {"a": {"tokens": [1]}}), "damaged"),
        (b" " * 50_000_001, "more than 50 MB"),
    ):
        (tmp_path / "odd.json").write_bytes(content)
        page.locator("input[type=file]").set_input_files(tmp_path / "odd.json")
        expect(page.locator(".notice")).to_contain_text(told)
        expect(page.locator(".chats li")).to_have_count(1)
        expect(replies(page)).to_have_count(1)


def test_of_a_chat_that_no_request_can_hold_the_newest_messages_are_sent(
    page: Page, tmp_path: Path
) -> None:
    """The server takes 1 MiB, and the chat has 1.6."""
    words = "Ein schöner Tag. " * 2500
    (file,) = json.loads(chats({}, {}))["chats"]
    for i in range(40):
        role = ("user", "assistant")[i % 2]
        node = {"id": f"n{i}", "parent": f"n{i - 1}" if i else "root", "role": role, "text": words}
        file["chat"]["nodes"][f"n{i}"] = {**node, "created": i, "finish": "end"}
    whole = {"kind": "gptcore chats", "version": 1, "chats": [file]}
    (tmp_path / "long.json").write_text(json.dumps(whole))
    page.locator("input[type=file]").set_input_files(tmp_path / "long.json")
    page.locator(".chats li .title").click()
    say(page, "Hello!")
    expect(page.locator(".figures")).to_be_visible()
    expect(page.locator(".notice")).to_be_hidden()
    cut = page.locator(".cut + .message.user .body")
    expect(cut).to_have_text("Hello!")
    page.get_by_label("Tint by probability").click()
    expect(cut).to_have_text("Hello!")


def test_a_server_that_goes_away_is_told_and_loses_nothing(page: Page) -> None:
    page.context.set_offline(True)
    say(page, "Hello!")
    expect(box(page)).to_have_value("Hello!")
    expect(page.locator(".chats li")).to_have_count(0)  # nothing was said
    page.context.set_offline(False)
    talk(page, "Hello!")
    page.context.set_offline(True)
    say(page, "My name is Ada.")
    expect(page.locator(".notice")).to_contain_text("cannot be reached")
    expect(box(page)).to_have_value("My name is Ada.")
    expect(replies(page)).to_have_count(1)
    page.context.set_offline(False)
    page.errors.clear()  # the browser's own line about the network
    box(page).press("Enter")
    expect(replies(page)).to_have_count(2)


def test_a_refused_stream_is_told_in_its_own_words(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gptcore.gradio.guard.visitors.STREAMS", 0)
    say(page, "Hello!")
    expect(page.locator(".notice")).to_contain_text("close a tab of this page")
    expect(box(page)).to_have_value("Hello!")
    page.errors.clear()  # the browser's own line about the refusal


DAMAGE = """() => new Promise((resolve, reject) => {
    const opening = indexedDB.open("gptcore-chats");
    opening.onsuccess = () => {
        const change = opening.result.transaction(["chats"], "readwrite");
        const chats = change.objectStore("chats");
        chats.getAllKeys().onsuccess = ({ target }) => chats.put({ id: 5 }, target.result[0]);
        change.oncomplete = () => resolve(opening.result.close());
        change.onabort = () => reject(change.error);
    };
})"""


def test_of_a_damaged_chat_an_export_says_that_it_is_left_out(page: Page) -> None:
    talk(page, "Hello!")
    page.evaluate(DAMAGE)
    page.reload()
    page.get_by_role("button", name="New chat").first.click()
    talk(page, "Good evening!")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    assert len(json.loads(Path(download.value.path()).read_text("utf-8"))["chats"]) == 1
    expect(page.locator(".notice")).to_contain_text("1 damaged chat is not in the file.")


def set_quota(page: Page, **quota: int) -> None:
    origin = page.evaluate("location.origin")
    devtools = page.context.new_cdp_session(page)
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": origin, **quota})


def test_a_full_storage_is_told_and_the_chat_stays_on_the_page(page: Page) -> None:
    set_quota(page, quotaSize=1)
    file = {"name": "chats.json", "mimeType": "application/json", "buffer": chats({}, {})}
    page.locator("input[type=file]").set_input_files(file)
    expect(page.locator(".foot .notice.error")).to_contain_text("storage is full")
    said = talk(page, "Hello!")
    expect(page.locator(".foot .notice.error")).to_contain_text("storage is full")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    [entry] = json.loads(Path(download.value.path()).read_text("utf-8"))["chats"]
    texts = [node["text"] for node in entry["chat"]["nodes"].values()]
    assert texts == ["Hello!", said[0]], "what the page advises to export is in the file"
    set_quota(page)
    assert talk(page, "What is your name?")[0] == said[0]
    expect(page.locator(".foot .notice")).to_be_hidden()
    page.reload()
    expect(replies(page)).to_have_count(2)


def test_a_server_that_starts_again_in_the_middle_of_a_reply_loses_nothing(
    visit: Visit, slow_model: OnnxModel
) -> None:
    port = free_port()
    command = [sys.executable, "app.py", "--model", slow_model.bundle.path, "--port", port]
    with running("first", command, port) as server:
        page = visit(server.url)
        set_number(page, "Temperature", "0")  # it never ends by itself
        set_number(page, "Max tokens", "1500")
        say(page, "Hello!")
        expect(replies(page).last).not_to_be_empty()
        server.process.kill()
        expect(page.locator(".foot .notice.error")).to_contain_text("The connection broke off")
    written = replies(page).last.inner_text()
    with running("second", command, port):
        set_number(page, "Max tokens", "5")
        page.get_by_role("button", name="Continue").click()
        wait_for_the_end(page)
        assert len(replies(page).last.inner_text()) > len(written) > 0
        page.reload()
        expect(replies(page)).to_have_count(1)
    page.errors.clear()  # the browser's own lines about the network
