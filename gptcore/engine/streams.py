"""Replies for an event loop, which never waits for the engine's thread.

>>> async for i, piece in answers(model.engine, [request], Event(), ""):  # doctest: +SKIP
...     print(piece.text, end="")
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial

from gptcore.checks import Busy, UserError
from gptcore.engine.generate import Piece, Request, Stop
from gptcore.engine.scheduler import Engine

REPLY_SECONDS = 300.0  # after which a reply is ended, so that others get their turn


async def answers(
    engine: Engine, requests: Sequence[Request], stop: Stop, asker: str
) -> AsyncIterator[tuple[int, Piece]]:
    """Yield the pieces of the replies to requests as they come, each with its request's index.

    However this generator ends (a stop, a closed connection, an error), the computation ends too.
    After REPLY_SECONDS the replies end as "late"; raises Busy if none has begun, or an echo's
    prompt is not read, and UserError if nobody else's prompt was in the way. `asker`: see
    Engine.submit.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[tuple[int, Piece | Exception]] = asyncio.Queue()

    def deliver(i: int, piece: Piece | Exception) -> None:
        loop.call_soon_threadsafe(arrived.put_nowait, (i, piece))

    is_late = is_alone = has_begun = False

    def expire() -> None:
        nonlocal is_late, is_alone
        is_late, is_alone = True, engine.n_running <= len(requests)
        stop.set()

    timer = loop.call_later(REPLY_SECONDS, expire)
    try:
        for i, request in enumerate(requests):
            engine.submit(request, stop, partial(deliver, i), asker)
        n_left = len(requests)
        while n_left:
            i, piece = await arrived.get()
            if isinstance(piece, Exception):
                raise piece
            has_begun |= piece.n_new > 0
            if is_late and piece.finish == "stopped":
                piece = replace(piece, finish="late")
            if piece.finish == "late" and not piece.n_new:
                is_part = requests[i].is_scored  # and would look like a likelier text
                if is_part or not has_begun:
                    raise too_late(is_alone, is_one_of_several=is_part and len(requests) > 1)
            n_left -= bool(piece.finish)
            yield i, piece
    finally:
        timer.cancel()
        stop.set()


def too_late(is_alone: bool, is_one_of_several: bool) -> UserError:
    """Return the error of a prompt that was not read within REPLY_SECONDS."""
    seconds = f"{REPLY_SECONDS:.0f} s"
    if is_one_of_several:
        return Busy(f"the prompts were not all read in {seconds}: send fewer at once")
    if is_alone:
        return UserError(f"the prompt was not read in {seconds}: send a shorter one")
    return Busy(f"the model wrote for others for {seconds}: try again later")
