"""The run report: one HTML file with the curves, figures and samples of one or several runs.

The file needs no library and no network. report.html holds the page's frame and style, and
report.js draws the charts. This module writes the data, tables and texts, all of them escaped.

>>> write_report(Run.load("runs/mine"))                              # doctest: +SKIP
PosixPath('runs/mine/report.html')
"""

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from gptcore.system.files import new_file, write_json
from gptcore.system.wording import word
from training.report.findings import BITS, findings
from training.report.history import AXES, History, earlier, spread
from training.run.directory import Run, export_command

NOTHING = "–"  # shown for a missing value
MAX_SAMPLES = 40  # steps whose samples are shown
SAMPLES = 3  # of a step, for programs


@dataclass(frozen=True)
class Chart:
    """A chart of one or several metrics."""

    title: str
    unit: str
    curves: dict[str, str]  # keys of the metrics and their styles in report.js
    logarithmic: bool = False  # for values that span orders of magnitude


CHARTS = [
    Chart(  # alone, as a training text that is learned by heart takes up the scale
        "Unseen text",
        "bits per byte: what the model cannot foresee of it; lower is better",
        {"bits_per_byte": "dots"},
        logarithmic=True,
    ),
    Chart(
        "Loss",
        "bits per byte; lower is better",
        {"loss": "faint", "train_loss": "dashed", "bits_per_byte": "dots"},
        logarithmic=True,
    ),
    Chart("BLEU", "of 100", {"bleu": "dots"}),
    Chart("chrF", "of 100", {"chrf": "dots"}),
    Chart("Learning rate", "how far a step goes", {"rate": "line"}),
    Chart(
        "Gradient norm",
        "how strongly the text pulls at the weights, before clipping",
        {"gradient_norm": "line"},
        logarithmic=True,
    ),
    Chart("Speed", "tokens per second", {"tokens_per_s": "line"}),
    Chart("Model FLOPs utilisation", "share of the peak", {"mfu": "line"}),
    Chart("Peak memory", "bytes", {"peak_memory": "line"}),
]
LABELS = {
    "bits_per_byte": "unseen text",
    "loss": "training batch",
    "train_loss": "training text",
}


def shown(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else NOTHING


def clock_time(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def facts(history: History) -> dict[str, str]:
    """Return a run's row in the table of runs."""
    total, taken, reached = history.run.train.steps, history.taken, history.reached
    kept = history.summary.get("kept")
    tokens, seconds = history.last("tokens"), history.last("seconds")
    mixed = f", with {kept:.0%} of those before the training" if kept else ""
    return {
        "state": "finished" if history.summary else f"at step {history.step:,} of {total:,}",
        "weights": f"of step {taken:,}{mixed}" if taken is not None else NOTHING,
        "bits per byte of unseen text": shown(reached.get(BITS), ".4f"),
        "bits per byte of the training text": shown(reached.get("train_loss"), ".4f"),
        "steps": f"{history.step:,}",
        "tokens read": shown(tokens, ",.0f"),
        "time": clock_time(seconds),
        "tokens/s": shown(tokens / seconds if tokens and seconds else None, ",.0f"),
        "parameters": shown(history.summary.get("parameters"), ",.0f"),
        "data": history.run.data.source,
    }


def differing(histories: list[History]) -> dict[str, list[str]]:
    """Return the settings that differ between the runs, with each run's value."""
    keys = dict.fromkeys(key for history in histories for key in history.settings)
    rows = {
        key: [str(history.settings.get(key, NOTHING)) for history in histories]
        for key in keys
        if key not in ("shards", "examples", "source", "n_tokens")
    }
    return {key: values for key, values in rows.items() if len(set(values)) > 1}


def run_mark(number: int, name: str) -> str:
    return f'<span class="run" style="--n:{number}"><i></i>{escape(name)}</span>'


def runs_table(histories: list[History]) -> str:
    values_of = [facts(history) for history in histories]
    known = [key for key in values_of[0] if any(values[key] != NOTHING for values in values_of)]
    head = "".join(f'<th scope="col">{key}</th>' for key in ["run", *known])
    rows = ""
    for number, (history, values) in enumerate(zip(histories, values_of)):
        cells = "".join(f'<td data-of="{key}">{escape(values[key])}</td>' for key in known)
        rows += (
            f'<tr><th scope="row"><label><input type="checkbox" data-run="{number}" checked> '
            f"{run_mark(number, history.name)}</label></th>{cells}</tr>"
        )
    return f'<table class="runs"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def settings_table(histories: list[History], rows: dict[str, list[str]]) -> str:
    marks = [run_mark(number, history.name) for number, history in enumerate(histories)]
    head = "".join(f'<th scope="col">{mark}</th>' for mark in marks)
    body = "".join(
        f'<tr><th scope="row">{escape(key)}</th>'
        + "".join(f"<td>{escape(value)}</td>" for value in values)
        + "</tr>"
        for key, values in rows.items()
    )
    return f"<table><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>"


def differences_of(histories: list[History]) -> str:
    """Return HTML with the settings in which the runs differ; nothing for one run alone."""
    if len(histories) == 1:
        return ""
    rows = differing(histories)
    return (
        '<h2>Settings that differ</h2>\n<div class="scroll" role="region" '
        'aria-label="Settings that differ" tabindex="0">'
        f"{settings_table(histories, rows) if rows else '<p>None.</p>'}</div>"
    )


def samples_at(run: Run, taken: int | None) -> dict[str, Any] | None:
    """Return the samples of the step `taken`, or of the last one, if there are some."""
    written = dict(run.samples())
    if not written:
        return None
    step = taken if taken in written else max(written)
    return {"step": step, "written": written[step][:SAMPLES]}


def samples_of(history: History, number: int) -> str:
    """Return HTML with a run's samples, newest first; the first run's newest ones are unfolded.

    A sample is what was given to the model, and below it what the model wrote.
    """
    html = ""
    written = history.run.samples()
    for step, samples in [written[i] for i in reversed(spread(len(written), MAX_SAMPLES))]:
        texts = "".join(
            f'<dl class="sample"><dt>given</dt><dd>{escape(prompt)}</dd>'
            f"<dt>written</dt><dd>{escape(text) or '<i>nothing</i>'}</dd></dl>"
            for prompt, text in samples
        )
        is_open = " open" if number == 0 and not html else ""
        html += f"<details{is_open}><summary>Step {step:,}</summary>{texts}</details>"
    return f"<h3>{run_mark(number, history.name)}</h3>{html}" if html else ""


def findings_of(history: History, mark: str) -> str:
    """Return HTML with what the curves of a run say, and what to try next."""
    html, all_found = "", findings(history)
    if history.summary and not all_found:
        return f"<p>{mark} The curves show nothing odd.</p>"
    for found in all_found:
        remedy = f" <small>Try {escape(found.remedy)}.</small>" if found.remedy else ""
        html += f"<p>{mark} {escape(found.text)}{remedy}</p>"
    return html


def next_of(run: Run) -> str:
    """Return HTML with the commands by which a finished run is talked to."""
    if not run.is_complete:
        return ""
    model, is_translator = f"models/{run.path.resolve().name}", run.data.n_pairs is not None
    talk = "app.py --translate" if is_translator else "-m gptcore chat"
    commands = (export_command(run.path), f"python {talk} {word(model)}")
    exporting, talking = (f"<code>{escape(command)}</code>" for command in commands)
    return f"<p>To use it: {exporting}, then {talking}.</p>"


def charts_of(curves: list[dict[str, Any]], is_smoothed: bool) -> tuple[str, list[dict[str, Any]]]:
    """Return HTML and the settings for report.js of all charts that have a curve.

    `is_smoothed`: whether a run's loss of training is of smoothed labels, which is higher than
    that of the unseen text beside it.
    """
    html, charts = "", []
    known = LABELS | ({"loss": "training batch, labels smoothed"} if is_smoothed else {})
    for chart in CHARTS:
        drawn = {key: style for key, style in chart.curves.items() if any(key in c for c in curves)}
        if not drawn:
            continue
        key = "".join(f'<span class="{s}"><i></i>{known.get(k)}</span>' for k, s in drawn.items())
        html += (
            f'<figure><figcaption><h3>{chart.title}</h3> <span class="unit">{chart.unit}</span>'
            f'<span class="key">{key if len(drawn) > 1 else ""}</span></figcaption>'
            '<div class="plot"></div><details><summary>Values</summary></details></figure>'
        )
        labels = {key: known.get(key, chart.title.lower()) for key in drawn}
        settings = {"title": chart.title, "curves": drawn, "labels": labels}
        charts.append(settings | {"logarithmic": chart.logarithmic})
    return html, charts


def page(named: list[History], earlier_ones: list[Run]) -> str:
    """Return the report of the named runs, with earlier ones for comparison."""
    n_named, histories = len(named), [*named, *map(History, earlier_ones)]
    keys = [key for chart in CHARTS for key in chart.curves]
    curves = [
        {key: curve for key in keys if (curve := history.curve(key))} for history in histories
    ]
    is_smoothed = any(history.run.train.label_smoothing for history in histories)
    figures, charts = charts_of(curves, is_smoothed)
    axes = {k: v for k, v in AXES.items() if any(h.last(k) is not None for h in histories)}
    drawn = [{"name": h.name, "curves": c} for h, c in zip(histories, curves)]
    data = json.dumps({"runs": drawn, "charts": charts, "axes": axes}, separators=(",", ":"))
    everything = {key: [str(value)] for key, value in histories[0].settings.items()}
    marks = [
        f"<b>{run_mark(n, h.name)}</b>" if n_named > 1 else "" for n, h in enumerate(histories)
    ]
    said = "".join(map(findings_of, histories[:n_named], marks))
    here = Path(__file__)
    return Template(here.with_suffix(".html").read_text(encoding="utf-8")).substitute(
        title=escape(", ".join(history.name for history in histories[:n_named])),
        state=facts(histories[0])["state"] if n_named == 1 else f"{n_named} runs compared",
        first=escape(histories[0].name),
        runs=runs_table(histories),
        findings=said + (next_of(histories[0].run) if n_named == 1 else ""),
        figures=figures or "<p>Nothing has been measured yet.</p>",
        differences=differences_of(histories),
        samples="".join(samples_of(h, n) for n, h in enumerate(histories)) or "<p>None yet.</p>",
        settings=settings_table(histories[:1], everything),
        data=data.replace("<", "\\u003c"),  # so that no text can end the script element
        script=here.with_suffix(".js").read_text(encoding="utf-8"),
    )


def write_page(named: list[History], path: Path) -> Path:
    """Write the report atomically, because somebody may have the old one open."""
    text = page(named, earlier(named[0].run) if len(named) == 1 else [])
    with new_file(path) as temporary:  # file names need not be UTF-8
        temporary.write_text(text, encoding="utf-8", errors="replace")
    return path


def write_report(run: Run) -> Path:
    """Write report.html, with the newest earlier runs beside this one, and report.json."""
    history = History(run)
    taken, found = history.taken, [finding._asdict() for finding in findings(history)]
    values = {
        "taken": taken,
        "samples": samples_at(run, taken),
        "findings": found,
        "few_held_out": run.data.few_held_out,
    }
    write_json(run.path / "report.json", values)
    return write_page([history], run.path / "report.html")
