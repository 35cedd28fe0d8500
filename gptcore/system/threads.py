"""Threads for which the end of the program waits.

>>> in_thread(lambda: 6 * 7).result()
42

ONNX Runtime that computes in another thread while Python ends would abort the process. The threads
of a server that is itself in a thread, such as Gradio's, are of that other kind.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


def in_thread(call: Callable[[], Result]) -> Future[Result]:
    """Call a function in a thread of its own, and return what it will return or raise."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # who waits no longer cancels nothing

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # or everybody would wait without end
            future.set_exception(error)

    Thread(target=run, daemon=False).start()
    return future


async def finished(call: Callable[[], Result]) -> Result:
    """Return what a function returns in a thread of its own.

    Who is cancelled meanwhile waits for the thread: what the call holds is not given up before.
    """
    result = asyncio.wrap_future(in_thread(call))
    try:
        return await asyncio.shield(result)
    except asyncio.CancelledError:
        with suppress(Exception):
            await result
        raise
