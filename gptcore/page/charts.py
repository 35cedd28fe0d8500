"""Heat maps. The browser draws them (altair), so characters of every script are shown.

>>> heat_map(np.eye(2), ["a", "b"], ["c", "d"], "attention").to_dict()["mark"]["type"]
'rect'
"""

import json

import altair as alt
import numpy as np

from gptcore.page.parts import shown

WIDTH, SMALLEST, LARGEST = 900, 14, 28  # pixels: width of the whole map, smallest and largest cell
INK = "currentColor"  # the page's text colour, in light and dark mode
SVG = {"actions": False, "renderer": "svg"}  # a canvas can neither use INK nor be enlarged sharply


def heat_map(
    values: np.ndarray, rows: list[str], columns: list[str], title: str, subtitle: str = ""
) -> alt.Chart:
    """Return a chart of values (len(rows), len(columns)); cells that are not finite stay empty."""
    cell = min(max(WIDTH // max(values.shape), SMALLEST), LARGEST)
    cells = [
        {"row": i, "column": j, "name": f"{shown(rows[i])} → {shown(columns[j])}", "value": value}
        for i, line in enumerate(values.astype(float).round(4).tolist())
        for j, value in enumerate(line)
        if np.isfinite(value)
    ]
    return (
        alt.Chart(alt.Data(values=cells), width=alt.Step(cell), height=alt.Step(cell))
        .mark_rect()
        .encode(
            x=alt.X("column:O", title=None, axis=axis(columns, angle=-60)),
            y=alt.Y("row:O", title=None, axis=axis(rows, angle=0)),
            color=alt.Color("value:Q", title=None, scale=alt.Scale(scheme="viridis")),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("value:Q")],
        )
        .properties(title=alt.Title(title, subtitle=subtitle, anchor="start"))
        .properties(usermeta={"embedOptions": SVG})
        .configure(background="transparent")
        .configure_title(color=INK, subtitleColor=INK)
        .configure_axis(labelColor=INK, tickColor=INK)
        .configure_legend(labelColor=INK)
        .configure_view(stroke=None)
    )


def axis(names: list[str], angle: int) -> alt.Axis:
    """Return an axis with labels by position, since a token may occur several times."""
    labels = json.dumps([shown(name) for name in names])
    return alt.Axis(labelExpr=f"{labels}[datum.value]", labelAngle=angle, labelOverlap=False)
