"""The values that arrive for an event of the page, counted before Gradio reads them.

Gradio answers a call with too few values with an error without words, and writes a traceback. Here
the call is refused with a reason, which the page shows; the endpoints check the values themselves.

>>> check_call(page, "/gradio_api/call/chat", {"data": []})             # doctest: +SKIP
Traceback (most recent call last):
gptcore.api.access.Refused: chat takes 10 values in data, not 0: message, history, ...
"""

import inspect
import re
from typing import TYPE_CHECKING, Any

import gradio as gr

from gptcore.api.access import Refused

if TYPE_CHECKING:
    from gradio.block_function import BlockFunction

SESSION = re.compile(r"[\w-]{1,64}", re.ASCII)


def check_call(page: gr.Blocks, path: str, content: Any) -> None:
    """Raise Refused unless a call has the values that its event takes."""
    if not isinstance(content, dict):
        raise Refused(400, "the body must be a JSON object")
    session = content.get("session_hash")  # Gradio joins it to other names, and may find none in ""
    if isinstance(session, str) and not SESSION.fullmatch(session):
        told = "session_hash must have 1 to 64 letters, digits, - or _, or be left out"
        raise Refused(400, told)
    event = find_event(page, path, content)
    if "/call/v2/" in path:  # values have names, and those with a default may be left out
        check_names(event, content)
        return
    values = content.get("data")
    if not isinstance(values, list) or len(values) != len(event.inputs):
        n = len(values) if isinstance(values, list) else "none"
        wanted = f"{len(event.inputs)} values in data, not {n}: {', '.join(parameters(event))}"
        raise Refused(400, f"{event.api_name} takes {wanted}")


def find_event(page: gr.Blocks, path: str, content: dict[str, Any]) -> "BlockFunction":
    if "/call/" in path:
        name = path.rstrip("/").rpartition("/")[2]
        for event in page.fns.values():
            if event.api_name == name and event.api_visibility == "public":
                return event
        raise Refused(404, f"this page has no endpoint {name!r}")
    index = content.get("fn_index")
    if type(index) is not int or index not in page.fns:
        raise Refused(400, f"this page has no event {index!r}: reload it")
    event = page.fns[index]
    if "/run/" in path and event.queue:
        raise Refused(403, f"{event.api_name} is a queued event: it cannot be called directly")
    return event


def check_names(event: "BlockFunction", content: dict[str, Any]) -> None:
    known = parameters(event)
    for name in content:
        if name not in known:
            raise Refused(400, f"{event.api_name} has no {name!r}: {', '.join(known)}")
    for name, is_needed in known.items():
        if is_needed and name not in content:
            raise Refused(400, f"{event.api_name}: {name} is missing")


def parameters(event: "BlockFunction") -> dict[str, bool]:
    """Return the names of an event's parameters, and whether each must be given."""
    found = inspect.signature(event.fn).parameters if event.fn else {}
    return {name: p.default is p.empty for name, p in found.items()}
