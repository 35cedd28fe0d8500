"""What the view's Translate asks: translations, and where their words came from.

`translation` gives an event for each line, {"line": 1, "text": ..., "source": ids,
"target": ids, "finished": true}, and `crossing` the cross-attention of one of them:

    {"source": names, "target": names, "arrays": {"cross": {"shape": [L, H, T, S], "data": "..."},
     "encoder": ..., "decoder": ...}}
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from threading import main_thread
from typing import Any
from weakref import WeakValueDictionary

from gptcore.bundle import TranslationBundle
from gptcore.checks import UserError
from gptcore.engine.inputs import whole_number
from gptcore.engine.streams import REPLY_SECONDS
from gptcore.inspection import MAX_TOKENS, Inspector, inspect_translation
from gptcore.model import device_line
from gptcore.page.inspect import packed
from gptcore.page.reply import as_json
from gptcore.system.threads import finished
from gptcore.text.tokenizer import Tokenizer
from gptcore.translation.onnx import OnnxTranslator
from gptcore.translation.search import MAX_BEAMS, Translation, read_source, translate

BEAMS = 4
MAX_LINES = 100
PLACES = 4  # for the translations of an endpoint that run at once
NOTHING = Translation("", [], [], True)  # the result for an empty line


def translator_facts(model: OnnxTranslator) -> dict[str, Any]:
    """Return the facts about a translator that the view shows."""
    bundle = model.bundle
    return {
        "name": bundle.name,
        "line": device_line(model),
        "examples": bundle.facts.examples,
        "beams": {"default": BEAMS, "highest": MAX_BEAMS},
        "most_drawn": MAX_TOKENS,
    }


def translation_endpoint(model: OnnxTranslator, asker: Callable[[], str]) -> Callable:
    translated = fairly_translated(model, asker)

    async def translation(text: str, beams: int) -> AsyncIterator[str]:
        line = 0
        async for result in translated(text, beams):
            line += 1
            yield as_json(
                line=line,  # Gradio sends nothing for an event that equals the one before
                text=result.text,
                source=result.source_ids,
                target=result.target_ids,
                finished=result.finished,
            )

    return translation


def crossing_endpoint(bundle: TranslationBundle) -> Callable:
    open_inspector = cache(lambda: Inspector(bundle))

    def look(source: Any, target: Any) -> str:
        check_ids(source, bundle.source_tokenizer, bundle.config.block_size)
        check_ids(target, bundle.tokenizer, bundle.config.block_size + 1)  # the last is not read
        seen = inspect_translation(open_inspector(), Translation("", source, target, True))
        found = {"cross": seen.attention, "encoder": seen.encoder, "decoder": seen.decoder}
        arrays = {name: packed(array) for name, array in found.items()}
        return as_json(source=seen.source, target=seen.target, arrays=arrays)

    async def crossing(source: list[int], target: list[int]) -> AsyncIterator[str]:
        yield await finished(lambda: look(source, target))

    return crossing


def check_ids(ids: Any, tokenizer: Tokenizer, readable: int) -> None:
    """Raise UserError unless these are the ids of a sentence that can be read and drawn."""
    most = min(MAX_TOKENS, readable)
    if not (isinstance(ids, list) and 2 <= len(ids) <= most):
        raise UserError(f"a sentence to draw must be a list of 2 to {most} ids")
    if not all(map(tokenizer.is_id, ids)):
        raise UserError("a sentence holds an id that this model does not have")


def fairly_translated(
    model: OnnxTranslator, asker: Callable[[], str]
) -> Callable[[Any, Any], AsyncIterator[Translation]]:
    """Return an asynchronous function of (text, beams) that yields what translate_lines does.

    Its lines are translated in threads, so that the event loop goes on, and it ends with the
    program. Of all PLACES one visitor, as `asker` names them, has at most PLACES - 1 at a time;
    their further translations wait, so that one place is left to others.
    """
    places = asyncio.Semaphore(PLACES)
    places_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def translated(text: Any, beams: Any) -> AsyncIterator[Translation]:
        own = places_of.setdefault(asker(), asyncio.Semaphore(PLACES - 1))
        async with own, places:
            lines = translate_lines(model, text, beams)
            while main_thread().is_alive():
                result = await finished(lambda: next(lines, None))
                if not result:
                    return
                yield result

    return translated


def translate_lines(model: OnnxTranslator, text: Any, beams: Any) -> Iterator[Translation]:
    """Yield the translation of each line; an empty line gives an empty one.

    Raises UserError before the first line is translated if the input is invalid, and between two
    lines once all of them have taken longer than a reply may.
    """
    if not isinstance(text, str):
        raise UserError(f"the text must be a string, not {type(text).__name__}")
    beams = whole_number("beams", beams)
    lines = re.split("\r\n|\r|\n", text.rstrip())  # not as splitlines, which splits sentences, too
    if len(lines) > MAX_LINES:
        raise UserError(f"the text has {len(lines)} lines; translate at most {MAX_LINES} at once")
    for number, line in enumerate(lines, 1):
        try:
            if line.strip() or len(lines) == 1:
                read_source(model, line)
        except UserError as error:
            where = f"sentence {number}: " if len(lines) > 1 else ""
            raise UserError(f"{where}{error}") from None
    ended = time.monotonic() + REPLY_SECONDS
    for n_done, line in enumerate(lines):
        if time.monotonic() > ended:
            raise UserError(
                f"only {n_done} of {len(lines)} lines were translated in {REPLY_SECONDS / 60:.0f} "
                "minutes: send the others separately"
            )
        yield translate(model, line, beams) if line.strip() else NOTHING
