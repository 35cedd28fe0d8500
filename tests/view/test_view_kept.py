"""What is kept of a chat: by two tabs, with a clock that is set back, in files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from in_browser import (
    asked,
    box,
    delete_last,
    edit,
    other_tab,
    rename,
    replies,
    say,
    set_number,
    slow_network,
    talk,
    wait_for_the_end,
    write_slowly,
)
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.slow

STORY = "Tell me a story about a cat."
MODULE = "const {name} = await import(new URL('view/{path}', document.baseURI));"
TREE = MODULE.format(name="tree", path="kept/tree.js")
TRANSFER = MODULE.format(name="transfer", path="kept/transfer.js")


def test_what_another_tab_changes_while_a_reply_grows_is_kept_with_it(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_slowly(page, monkeypatch)
    say(page, STORY)
    other = other_tab(page)  # while the reply has just begun
    rename(other, "Cats")
    other.get_by_label("System prompt").fill("Be kind.")
    wait_for_the_end(page)
    written = replies(page).inner_text()
    assert len(written) > 100
    expect(other.locator(".finish")).to_have_text(page.locator(".finish").inner_text())
    expect(replies(other)).to_have_text(written, use_inner_text=True)
    for tab in (page, other):
        tab.reload()
        expect(tab.locator(".chats li .title")).to_have_text("Cats")
        expect(tab.get_by_label("System prompt")).to_have_value("Be kind.")
        expect(replies(tab)).to_have_text(written, use_inner_text=True)
    with slow_network(page, bytes_per_s=1000):
        say(page, STORY)
        expect(replies(other)).to_have_count(2)
        delete_last(other)
        expect(replies(page)).to_have_count(1)
    wait_for_the_end(page)
    for tab in (page, other):
        tab.reload()
        expect(replies(tab)).to_have_text(written, use_inner_text=True)


def test_a_reply_that_another_tab_is_writing_is_not_called_broken(page: Page) -> None:
    with slow_network(page, bytes_per_s=300):
        say(page, STORY)
        expect(replies(page)).not_to_be_empty()
        other = other_tab(page)
        expect(replies(other)).to_have_count(1)
        assert other.locator(".finish").inner_text() == ""
        assert other.get_by_role("button", name="Continue").count() == 0
    wait_for_the_end(page)
    expect(other.locator(".finish")).to_have_text(page.locator(".finish").inner_text())
    other.close()


def delete_one(page: Page) -> None:
    page.locator(".chats li").hover()
    page.get_by_label("Delete Tell me").click()


def delete_all(page: Page) -> None:
    page.get_by_role("button", name="Delete all", exact=True).click()
    page.get_by_role("button", name="Delete all chats, for ever").click()


def test_what_is_set_while_another_tabs_change_is_read_is_kept(page: Page) -> None:
    talk(page, "Hello!")
    other = other_tab(page)
    other.evaluate("""() => {
        const { get } = IDBObjectStore.prototype;
        IDBObjectStore.prototype.get = function (key) {
            const request = get.call(this, key);
            if (this.name === "chats" && this.transaction.mode === "readonly") {
                IDBObjectStore.prototype.get = get;
                const box = document.querySelector("#system");
                box.value = "Be kind.";
                box.dispatchEvent(new Event("input"));
            }
            return request;
        };
    }""")
    edit(page.locator(".message.assistant"), "Good morning!").press("Enter")
    for tab in (other, page):
        expect(replies(tab)).to_have_text("Good morning!")
        expect(tab.get_by_label("System prompt")).to_have_value("Be kind.")
    for tab in (other, page):
        tab.reload()
        expect(replies(tab)).to_have_text("Good morning!")
        expect(tab.get_by_label("System prompt")).to_have_value("Be kind.")


@pytest.mark.parametrize(("delete", "is_writing"), [(delete_one, True), (delete_all, False)])
def test_a_chat_that_another_tab_deletes_stays_deleted(
    page: Page, delete: Callable[[Page], None], is_writing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_writing:
        write_slowly(page, monkeypatch)
        say(page, STORY)
    else:
        talk(page, STORY)
    other = other_tab(page)
    delete(other)
    expect(other.locator(".chats li")).to_have_count(0)
    expect(replies(page)).to_have_count(0)
    wait_for_the_end(page)
    set_number(page, "Max tokens", "20")
    other.reload()
    expect(box(other)).to_be_visible()
    expect(other.locator(".chats li")).to_have_count(0)
    talk(page, "Good morning!")  # a new chat
    expect(other.locator(".chats li .title")).to_have_text(["Good morning!"])


def expect_continued(page: Page, begun: str) -> None:
    """Press Continue, and expect a longer reply that begins as the one that is there."""
    set_number(page, "Max tokens", "20")
    page.get_by_role("button", name="Continue").click()
    expect(replies(page)).not_to_have_text([begun])
    wait_for_the_end(page)
    (longer,) = replies(page).all_inner_texts()
    assert longer.startswith(begun) and len(longer) > len(begun) + 5


def test_a_reply_is_continued_after_another_tab_has_changed_its_chat(page: Page) -> None:
    set_number(page, "Max tokens", "8")
    (begun,) = talk(page, STORY)
    rename(other_tab(page), "Cats")
    expect(page.locator(".chats li .title")).to_have_text("Cats")  # this tab has taken it over
    expect_continued(page, begun)


def test_a_clock_that_is_set_back_loses_nothing(page: Page) -> None:
    talk(page, "Hello!", STORY)
    page.evaluate("() => { const { now } = Date; Date.now = () => now() - 3_600_000; }")
    delete_last(page)
    expect(replies(page)).to_have_count(1)
    (_, last) = talk(page, "Good evening!")
    page.reload()
    expect(replies(page)).to_have_count(2)
    expect(replies(page).last).to_have_text(last)


def test_a_longer_copy_of_a_reply_is_the_whole_one_and_no_older_name_comes_back(page: Page) -> None:
    merged = page.evaluate(
        f"""async () => {{
            {TREE}
            const chat = tree.newChat();
            const node = tree.add(chat, tree.ROOT, {{ role: "assistant", text: "One." }});
            const whole = structuredClone(chat);
            Object.assign(whole.nodes[node.id], {{ text: "One. Two.", finish: "end" }});
            tree.set(chat, {{ title: "Renamed" }});
            whole.changed = chat.changed + 1000; // it was written on without a word of the new name
            return [tree.merge(chat, whole), tree.merge(whole, chat)];
        }}"""
    )
    for chat in merged:
        (node,) = chat["nodes"].values()
        assert (chat["title"], node["text"], node["finish"]) == ("Renamed", "One. Two.", "end")


def test_a_reply_is_continued_after_a_try_that_failed(page: Page) -> None:
    set_number(page, "Max tokens", "8")
    (begun,) = talk(page, STORY)
    page.context.set_offline(True)
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".notice")).not_to_be_empty()
    wait_for_the_end(page)
    expect(replies(page)).to_have_text([begun])
    page.context.set_offline(False)
    expect_continued(page, begun)
    page.errors.clear()  # of the requests that were made offline


def test_many_chats_make_files_that_are_read_again(page: Page) -> None:
    talk(page, "Hello!")
    page.get_by_role("button", name="New chat").first.click()
    talk(page, "Good morning!", STORY)
    found = page.evaluate(
        f"""async () => {{
            {TRANSFER}
            const {{ openStore }} = await import(new URL("view/kept/store.js", document.baseURI));
            const store = await openStore();
            const ids = (await store.list()).map(({{ id }}) => id);
            const files = async (largest) => {{
                const texts = [];
                for await (const text of transfer.asJson(store, ids, [], largest)) texts.push(text);
                return texts;
            }};
            const one = await files(transfer.LARGEST);
            const parts = await files(one[0].length);
            const small = await files(5000);
            await store.clear();
            const read = [];
            for (const text of parts) read.push(await transfer.importJson(store, new Blob([text])));
            return {{ one, parts, small, read, again: await files(transfer.LARGEST) }};
        }}"""
    )
    assert len(found["one"]) == 1 and len(found["parts"]) == 2 and found["read"] == [1, 1]
    assert found["again"] == found["one"]
    (story, *_) = (json.loads(text)["chats"][0] for text in found["small"])
    assert max(map(len, found["small"])) <= 5000 and len(story["chat"]["nodes"]) == 4
    assert story["tokens"] == {}  # which made it larger than a file may be


def test_a_file_brings_back_what_was_deleted_from_an_open_chat(page: Page, tmp_path: Path) -> None:
    said = talk(page, "Hello!", STORY)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    download.value.save_as(tmp_path / "chats.json")
    delete_last(page)
    expect(replies(page)).to_have_count(1)
    page.locator("input[type=file]").set_input_files(tmp_path / "chats.json")
    expect(page.locator(".notice")).to_contain_text("1 chat was imported")
    expect(replies(page)).to_have_text(said, use_inner_text=True)
    page.reload()
    expect(replies(page)).to_have_text(said, use_inner_text=True)


def test_what_is_begun_keeps_its_probabilities(page: Page) -> None:
    """Else the begun part of a reply could not be branched any more, nor seen."""
    set_number(page, "Max tokens", "8")
    say(page, STORY)
    wait_for_the_end(page)
    page.get_by_role("button", name="Continue").click()
    wait_for_the_end(page)
    page.reload()
    page.get_by_role("button", name="Continue").click()
    page.wait_for_timeout(500)
    wait_for_the_end(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    [entry] = json.loads(Path(download.value.path()).read_text("utf-8"))["chats"]
    [reply] = entry["tokens"].values()
    likely = [logprob for _, _, logprob, *_ in reply["tokens"]]
    assert len(likely) == 24 and None not in likely


def test_a_character_that_the_end_cuts_in_two_is_left_to_who_goes_on(page: Page) -> None:
    glass = MODULE.format(name="glass", path="parts/glass.js")
    cases = [["Hi \ufffd", "length"], ["Hi \ufffd", "end"], ["Hi \ufffd", None], ["Hi", "length"]]
    said = page.evaluate(
        f"async (cases) => {{ {glass} return cases.map((it) => glass.whole(...it)); }}",
        cases,
    )
    assert said == ["Hi ", "Hi \ufffd", "Hi \ufffd", "Hi"]


def test_the_tokens_of_a_message_go_and_come_back_with_it(page: Page) -> None:
    talk(page, "Hello!", STORY)
    kept = """async () => {
        const opening = indexedDB.open("gptcore-chats");
        await new Promise((resolve) => (opening.onsuccess = resolve));
        const all = opening.result.transaction("tokens").objectStore("tokens").getAllKeys();
        return new Promise((resolve) => (all.onsuccess = () => resolve(all.result.length)));
    }"""
    assert page.evaluate(kept) == 2
    page.reload()
    delete_last(page)
    expect(replies(page)).to_have_count(1)
    page.wait_for_function(f"({kept})().then((n) => n === 1)")
    page.get_by_role("button", name="Undo").click()
    expect(replies(page)).to_have_count(2)
    page.wait_for_function(f"({kept})().then((n) => n === 2)")


def test_what_is_changed_after_a_deletion_outlives_its_undo(page: Page) -> None:
    (first, _) = talk(page, "Hello!", STORY)
    delete_last(page)
    expect(replies(page)).to_have_text([first])
    edit(page.locator(".message.assistant"), "Another greeting.").press("Control+Enter")
    expect(replies(page)).to_have_text(["Another greeting."])
    page.get_by_role("button", name="Undo").click()
    page.reload()
    expect(replies(page)).to_have_text(["Another greeting."])
    page.get_by_label("The version before").click()
    expect(asked(page)).to_have_text(["Hello!", STORY])
    page.get_by_label("The next version").click()
    expect(replies(page)).to_have_text(["Another greeting."])


def test_undo_outlives_a_change_of_language(page: Page) -> None:
    said = talk(page, "Hello!", STORY)
    delete_last(page)
    page.get_by_role("button", name="中文").click()
    expect(replies(page)).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(replies(page)).to_have_text(said, use_inner_text=True)
    expect(page.locator(".notice")).to_be_hidden()


def test_presets_of_two_tabs_are_kept_side_by_side(page: Page) -> None:
    talk(page, "Hello!")
    other = other_tab(page)
    for tab, name in ((page, "One"), (other, "Two"), (page, "Three")):
        tab.get_by_role("button", name="+ Save as preset").click()
        tab.get_by_role("textbox", name="Name", exact=True).fill(name)
        tab.keyboard.press("Enter")
    own = page.locator(".own > :first-child")
    expect(own).to_have_text(["One", "Two", "Three"])
    other.get_by_label("Forget Two").click()
    expect(other.locator(".own > :first-child")).to_have_text(["One", "Three"])


def test_a_version_that_goes_gives_its_place_to_the_one_that_was_shown(page: Page) -> None:
    """As that of a reply that failed does."""
    shown = page.evaluate(
        f"""() => (async () => {{
            {TREE}
            const chat = tree.newChat();
            const nodes = ["a", "b", "c"].map((text) => tree.add(chat, tree.ROOT, {{ text }}));
            tree.turn(chat, nodes[2], -2);
            const texts = () => tree.path(chat).map(({{ text }}) => text).join();
            const found = [texts()];
            tree.remove(chat, nodes[2]);
            found.push(texts());
            tree.remove(chat, tree.add(chat, tree.ROOT, {{ text: "failed" }}));
            found.push(texts());
            tree.remove(chat, nodes[0]);
            return [...found, texts()];
        }})()"""
    )
    assert shown == ["a", "a", "a", "b"]


def test_a_database_that_the_browser_closed_is_opened_again(page: Page) -> None:
    """As an iPhone does with a page that was long in the background."""
    page.add_init_script(
        """const { open } = IDBFactory.prototype;
        IDBFactory.prototype.open = function (...given) {
            const opening = open.apply(this, given);
            opening.addEventListener("success", () => (self.lastDatabase = opening.result));
            return opening;
        };"""
    )
    page.reload()
    expect(box(page)).to_be_visible()
    talk(page, "Hello!")
    page.evaluate("self.lastDatabase.close()")
    talk(page, "Good morning!")
    expect(page.locator(".notice")).to_be_hidden()
    page.evaluate("self.lastDatabase.close()")
    page.get_by_role("button", name="New chat").first.click()
    page.locator(".chats li .title").click()
    expect(replies(page)).to_have_count(2)


def test_the_list_shows_what_was_searched_last(page: Page) -> None:
    """A search that takes long does not draw over the one after it."""
    talk(page, "Hello!")
    page.get_by_role("button", name="New chat").first.click()
    talk(page, "Good morning!")
    page.evaluate(
        """() => {
            const { get } = IDBObjectStore.prototype;
            const { set } = Object.getOwnPropertyDescriptor(IDBRequest.prototype, "onsuccess");
            IDBObjectStore.prototype.get = function (...given) {
                const request = get.apply(this, given);
                Object.defineProperty(request, "onsuccess", {
                    set(act) { set.call(this, (event) => setTimeout(() => act(event), 400)); },
                });
                return request;
            };
        }"""
    )
    search = page.get_by_role("searchbox")
    search.fill("morning")
    search.fill("")
    page.wait_for_timeout(1500)
    expect(page.locator(".chats li")).to_have_count(2)
