"""The end of a program whose threads are in the middle of something."""

import asyncio
import subprocess
import sys
from threading import Event

import pytest
from conftest import ROOT, SECONDS, TINY

from gptcore.system.threads import finished


def ended(*lines: str) -> subprocess.CompletedProcess[str]:
    """A program that has just ended; it knows the folder of a tiny translator."""
    first = f"import sys; sys.path.append({str(ROOT)!r}); folder = {str(TINY / 'translator')!r}"
    program = "\n".join((first, *lines))
    words = [sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)


def test_who_is_cancelled_waits_for_the_thread() -> None:
    begun, over, held = Event(), Event(), []

    async def asking() -> None:
        held.append("a place")
        try:
            await finished(lambda: (begun.set(), over.wait(SECONDS)))
        finally:
            held.clear()

    async def cancelled() -> None:
        asked = asyncio.create_task(asking())
        assert await asyncio.to_thread(begun.wait, SECONDS)
        asked.cancel()
        await asyncio.sleep(0.1)
        assert held == ["a place"]
        over.set()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert not held

    asyncio.run(cancelled())


def test_the_end_of_the_program_waits_for_a_line_that_is_translated() -> None:
    """A step of ONNX Runtime that goes on while Python ends would abort the process."""
    program = ended(
        "import asyncio, atexit; from threading import Event, Thread",
        "from gptcore.page.translate import *; from gptcore.translation import onnx",
        "step, begun, done = onnx.OnnxTranslatorSession.step, Event(), []",
        "def noted(self, *words):",
        "    begun.set()",
        "    logits = step(self, *words)",
        "    done.append(len(logits))",
        "    return logits",
        "onnx.OnnxTranslatorSession.step = noted",
        "model = onnx.load_translator(folder, threads=1)",
        "translate(model, 'hello there', 16)",
        "line = [*done]",
        "async def serve():",
        "    translated = fairly_translated(model, lambda: 'somebody')",
        "    async for _ in translated('hello there\\n' * 9, 16): pass",
        "    await asyncio.Event().wait()",  # for other requests
        "begun.clear(), done.clear()",
        "atexit.register(lambda: print(done != [] and done == line * (len(done) // len(line))))",
        "Thread(target=asyncio.run, args=[serve()], daemon=True).start()",
        "begun.wait()",
    )
    assert (program.returncode, program.stdout, program.stderr) == (0, "True\n", "")


def test_the_end_of_the_program_waits_for_what_its_window_loads() -> None:
    program = ended(
        "import atexit; from pathlib import Path; from threading import main_thread",
        "from gptcore.translation.onnx import load_translator",
        "from gptcore.window.door import Door",
        "def load():",
        "    main_thread().join()",
        "    load_translator(folder, threads=1)",
        "    print('loaded')",
        "atexit.register(print, 'the end')",
        "Door(load, print, 'a', Path())",
    )
    assert (program.returncode, program.stdout, program.stderr) == (0, "loaded\nthe end\n", "")
