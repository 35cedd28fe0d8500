"""The translate tab, with a chart of the cross-attention, and the endpoint /translate."""

from collections.abc import Callable, Iterator
from functools import cache
from threading import Event
from typing import Any

import gradio as gr

from gptcore.checks import UserError
from gptcore.inspection import MAX_TOKENS, CrossAttention, Inspector, inspect_translation
from gptcore.page.inputs import whole_number
from gptcore.page.parts import HIDDEN, heading, index_of, status_line
from gptcore.system.runtime import device_line
from gptcore.translation.onnx import OnnxTranslator
from gptcore.translation.search import MAX_BEAMS, Translation, read_source, translate

BEAMS, MEAN = 4, "mean of the heads"
MAX_LINES = 100
Updates = Iterator[tuple]  # new values of the tab's components
NOTHING = Translation("", [], [], True)  # the result for an empty line


def translate_tab(model: OnnxTranslator) -> None:
    """Add the tab that translates each line of a text and draws its cross-attention."""
    bundle, config = model.bundle, model.config
    open_inspector = cache(lambda: Inspector(bundle))
    results, stops = gr.State(), {}  # browser tab -> flag that ends its translation
    heading(
        bundle.name,
        "A small translation model. It can be wrong. Write each sentence on a line of its own.",
    )
    with gr.Row():
        with gr.Column(min_width=320):
            source = gr.Textbox(label="Text", lines=5, max_lines=12, placeholder="Type a sentence")
            with gr.Row():
                button = gr.Button("Translate", variant="primary", scale=3)
                stop = gr.Button("Stop", interactive=False, scale=1)
            if bundle.examples:
                gr.Examples(bundle.examples, source, label="Try one", api_visibility="private")
        with gr.Column(min_width=320):
            target = gr.Textbox(
                label="Translation", lines=5, max_lines=12, buttons=["copy"], elem_id="translation"
            )
            beams = gr.Slider(1, MAX_BEAMS, BEAMS, step=1, label="Beams", info="1: greedy")
    status = status_line("translate-status")
    gr.Markdown(device_line(model), elem_classes="device")
    with gr.Column(visible=False) as picture:
        with gr.Row():
            sentence = gr.Dropdown([], label="Picture of sentence", type="index", min_width=240)
            n, several = config.n_layer, config.n_layer > 1
            layer = gr.Slider(
                1, max(2, n), n, step=1, label="Layer", visible=several, min_width=240
            )
            heads = [MEAN, *(f"head {i + 1}" for i in range(config.n_head))]
            head = gr.Dropdown(heads, value=MEAN, label="Head", type="index", min_width=240)
        plot = gr.Plot(show_label=False, elem_id="cross-attention", elem_classes="heat-map")

    def run(request: gr.Request, text: str, beams: float, layer: float, head: int) -> Updates:
        """Yield values of `outputs`: the lines translated so far, and at the end the chart."""
        done, stop, hidden = [], Event(), gr.Column(visible=False)
        try:
            lines = translate_lines(model, text, beams)
            stops[request.session_hash] = stop
            yield [], "", "translating ...", hidden, gr.skip(), None, *buttons(busy=True)
            for result in lines:
                done.append(result)
                yield gr.skip(), shown(done), f"{len(done)} done ...", *(gr.skip(),) * 5
                if stop.is_set():
                    break
        except UserError as error:
            yield [], "", f"⚠ {error}", hidden, gr.skip(), None, *buttons(busy=False)
            return
        finally:
            stops.pop(request.session_hash, None)
        found = [result for result in done if result.target_ids]
        names = [f"{i}. {result.text}" for i, result in enumerate(found, 1)]
        line = summary(found) + (" · stopped by you" if stop.is_set() else "")
        picture, is_shown = redraw(found, 0, layer, head), bundle.inspect is not None
        yield (
            *(found, gr.skip(), line, gr.Column(visible=is_shown)),
            *(gr.Dropdown(names, value=names[0]), picture, *buttons(busy=False)),
        )

    def stop_it(request: gr.Request) -> None:
        if request.session_hash in stops:
            stops[request.session_hash].set()

    def redraw(found: list[Translation] | None, sentence: int | None, *choice: Any) -> object:
        if bundle.inspect is None or not found or sentence is None:
            return None
        result = found[min(sentence, len(found) - 1)]
        if is_too_long(result):
            return None
        return draw(inspect_translation(open_inspector(), result), *choice)

    outputs = [results, target, status, picture, sentence, plot, button, stop]
    inputs = [source, beams, layer, head]
    gr.on([button.click, source.submit], run, inputs, outputs, **HIDDEN)
    stop.click(stop_it, queue=False, **HIDDEN)
    gr.on(
        # The event is .input and not .change, because `run` sets the sentence and draws the chart
        # itself.
        [sentence.input, layer.change, head.change],
        redraw,
        [results, sentence, layer, head],
        plot,
        trigger_mode="always_last",  # at most one redraw waits while a slider is dragged
        **HIDDEN,
    )
    gr.api(translate_endpoint(model), api_name="translate")


def translate_lines(model: OnnxTranslator, text: Any, beams: Any) -> Iterator[Translation]:
    """Yield the translation of each line; an empty line gives an empty one.

    Raises UserError before the first line is translated if the input is invalid.
    """
    if not isinstance(text, str):
        raise UserError(f"the text must be text, not {type(text).__name__}")
    beams = whole_number("beams", beams)
    lines = text.strip().splitlines() or [""]
    if len(lines) > MAX_LINES:
        raise UserError(f"the text has {len(lines)} lines; translate at most {MAX_LINES} at once")
    for number, line in enumerate(lines, 1):
        try:
            if line.strip() or len(lines) == 1:
                read_source(model, line)
        except UserError as error:
            where = f"sentence {number}: " if len(lines) > 1 else ""
            raise UserError(f"{where}{error}") from None
    return (translate(model, line, beams) if line.strip() else NOTHING for line in lines)


def buttons(busy: bool) -> tuple[gr.Button, gr.Button]:
    """Return the buttons Translate and Stop; only one of them is enabled at a time."""
    return gr.Button(interactive=not busy), gr.Button(interactive=busy)


def is_too_long(result: Translation) -> bool:
    """Return whether a sentence has too many tokens for a readable chart."""
    return max(len(result.source_ids), len(result.target_ids)) > MAX_TOKENS


def shown(results: list[Translation]) -> str:
    return "\n".join(result.text for result in results)


def summary(results: list[Translation]) -> str:
    n = len(results)
    text = f"{n} sentence{'' if n == 1 else 's'}"
    n_cut = sum(not result.finished for result in results)
    n_long = sum(map(is_too_long, results))
    text += f" · {n_cut} did not end within the context" if n_cut else ""
    return text + (f" · {n_long} too long for a picture ({MAX_TOKENS} tokens)" if n_long else "")


def draw(seen: CrossAttention, layer: float | None, head: int | None) -> object:
    """Return the heat map of a sentence's cross-attention; head 0 means the mean of all."""
    from gptcore.page.charts import heat_map

    of_layer = seen.attention[index_of(layer, len(seen.attention))]
    values = of_layer[index_of(head, len(of_layer))] if head else of_layer.mean(0)
    return heat_map(
        values,
        seen.target,
        seen.source,
        "Cross-attention",
        "each row is a token of the translation; bright are the tokens of the text it came from",
    )


def translate_endpoint(model: OnnxTranslator) -> Callable:
    """Return the function of the API's /translate; it yields the growing text, line by line."""

    def translate_text(text: str, beams: int = BEAMS) -> Iterator[str]:
        found = []
        try:
            for result in translate_lines(model, text, beams):
                found.append(result)
                yield shown(found)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from None

    return translate_text
