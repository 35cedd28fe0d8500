"""The inspect tab: tokens, positions, attention and the next token for a typed text."""

from functools import cache
from typing import Any

import gradio as gr
import numpy as np

from gptcore.bundle import Bundle
from gptcore.checks import UserError
from gptcore.inspection import Inspection, Inspector, inspect_text
from gptcore.page.parts import HIDDEN, heading, index_of, shown, status_line

EXAMPLE = "My name is Ada. What is my name?"
ATTENTION, BEFORE, AFTER = "attention weights", "scores before the mask", "scores after the mask"
EMBEDDINGS, POSITIONS = "embeddings", "position table"
MAX_COLUMNS = 64  # number of columns drawn of embeddings and positions
N_NEXT = 6


def inspect_tab(bundle: Bundle) -> None:
    """Add the tab that shows how a decoder reads a text; its graph is onnx/inspect.onnx."""
    config, open_inspector = bundle.config, cache(lambda: Inspector(bundle))
    state = gr.State()
    heading(bundle.name, "How the model reads a text, and which token it predicts next.")
    with gr.Row(equal_height=True):
        text = gr.Textbox(
            EXAMPLE, show_label=False, max_lines=4, scale=5, placeholder="Type a text"
        )
        button = gr.Button("Look inside", variant="primary", scale=1)
    status = status_line("inspect-status")
    with gr.Column(visible=False) as results:
        with gr.Row():
            tokens = gr.HighlightedText(
                label="Tokens and their ids", scale=3, show_legend=False, min_width=320
            )
            following = gr.Label(label="The next token", scale=2, show_heading=False, min_width=320)
        with gr.Row():
            what = gr.Dropdown(
                [ATTENTION, BEFORE, AFTER, EMBEDDINGS, POSITIONS],
                value=ATTENTION,
                label="Picture",
                min_width=240,
            )
            layer, head = (
                gr.Slider(1, max(2, n), 1, step=1, label=label, visible=n > 1, min_width=240)
                for label, n in (("Layer", config.n_layer), ("Head", config.n_head))
            )
        plot = gr.Plot(show_label=False, elem_id="attention", elem_classes="heat-map")

    def look(text: str, *choice: Any) -> tuple:
        try:
            seen = inspect_text(open_inspector(), text, N_NEXT)
        except UserError as error:
            return None, gr.skip(), gr.skip(), None, gr.Column(visible=False), f"⚠ {error}"
        pairs = [(shown(name), str(i)) for name, i in zip(seen.tokens, seen.token_ids)]
        likeliest = {shown(name): probability for name, probability in seen.next_tokens}
        return (
            seen,
            pairs,
            likeliest,
            draw(seen, *choice),
            gr.Column(visible=True),
            f"{len(pairs)} tokens",
        )

    chosen = [what, layer, head]
    outputs = [state, tokens, following, plot, results, status]
    gr.on([button.click, text.submit], look, [text, *chosen], outputs, **HIDDEN)
    gr.on(
        [what.change, layer.change, head.change],
        draw,
        [state, *chosen],
        plot,
        trigger_mode="always_last",  # at most one redraw waits while a slider is dragged
        **HIDDEN,
    )


def draw(seen: Inspection | None, what: str, layer: float | None, head: float | None) -> object:
    """Return the chosen chart, or None before the first text."""
    from gptcore.page.charts import heat_map

    if seen is None:
        return None
    if what in (EMBEDDINGS, POSITIONS):
        table = seen.embeddings if what == EMBEDDINGS else seen.positions
        columns = [str(i) for i in range(min(table.shape[1], MAX_COLUMNS))]
        title = what.capitalize()
        if len(columns) < table.shape[1]:
            title += f", the first {len(columns)} of {table.shape[1]} columns"
        return heat_map(table[:, : len(columns)], seen.tokens, columns, title)
    n_layer, n_head = seen.attention.shape[:2]
    at = index_of(layer, n_layer), index_of(head, n_head)
    mask = np.tril(np.ones(seen.attention.shape[2:], bool))
    values = {
        ATTENTION: seen.attention[at],
        BEFORE: seen.scores[at],
        AFTER: np.where(mask, seen.scores[at], -np.inf),
    }[what]
    return heat_map(
        values,
        seen.tokens,
        seen.tokens,
        f"{what.capitalize()}, layer {at[0] + 1}, head {at[1] + 1}",
        "each row is a token that attends; each column is a token it attends to",
    )
