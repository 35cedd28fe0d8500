"""The static site on a small device; benchmarks/pages/small_device.py has its speed."""

from pathlib import Path

import pytest
from in_browser import set_number, talk
from sites import Open, download

from benchmarks.pages.small_device import SCREEN, Memory

pytestmark = pytest.mark.peers
MOST_GROWTH = 0.5  # MB of each heap; the texts alone are a quarter of a megabyte


def test_fifty_replies_on_a_narrow_screen_do_not_fill_the_memory(
    site: Path, open_page: Open
) -> None:
    page = open_page(site, width=SCREEN["width"])
    memory = Memory(page)
    page.reload()  # the worker is seen from its start
    download(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREEN["width"]
    page.get_by_role("button", name="Settings").click()
    set_number(page, "Max tokens", "8")
    page.keyboard.press("Escape")
    talk(page, *["Tell me a story."] * 10)
    before = memory.heaps()
    talk(page, *["Tell me a story."] * 40)
    grown = [after - was for was, after in zip(before, memory.heaps(), strict=True)]
    assert max(grown) < MOST_GROWTH, grown
