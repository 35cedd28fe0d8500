"""The run report: what it says of runs, and what a real browser makes of the file."""

import dataclasses
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import SCREENSHOTS
from matplotlib.figure import Figure
from playwright.sync_api import Browser, Page, expect

from gptcore.config import PRESETS
from gptcore.system.files import write_json
from training.__main__ import main
from training.report.history import MAX_POINTS, History, earlier
from training.report.records import draw_loss
from training.report.report import facts, write_page, write_report
from training.run.config import TrainConfig
from training.run.directory import Run
from training.run.facts import RunData

HOSTILE = "</script><script>boom()</script><img src=x onerror=boom()> & \"'`${1}"
STEPS = 200


def made_up(path: Path, steps: int = STEPS, finished: bool = True, **settings: object) -> Run:
    """A run directory as training leaves it, without the training."""
    model = dataclasses.replace(PRESETS["tiny"], block_size=64)
    config = TrainConfig(**{"steps": STEPS, "batch_size": 8, "micro_batch_size": 8, **settings})
    data = RunData("chats.jsonl", True, n_bytes=9, shards="x", corpus_sha256="c0ffee")
    run = Run(model, config, data, path=path)
    run.create()
    for step in range(10, steps + 1, 10):
        loss = 2 + 40 * config.learning_rate + 50 / step
        measured = {"rate": config.learning_rate, "gradient_norm": loss / 3, "tokens_per_s": 4000}
        run.log(step=step, loss=loss, **measured, tokens=step * 512, seconds=step / 8)
        if step % 50 == 0:
            run.log(step=step, val_loss=loss, bits_per_byte=loss / 2, train_loss=loss * 0.97)
            run.add_samples(step, [("Who?", f" A {HOSTILE}\n\n## Step 3\n of {step}"), ("And", "")])
    if finished:
        write_json(path / "summary.json", {"steps": steps, "parameters": 106_816})
    return run


@pytest.fixture
def opened(browser: Browser) -> Iterator:
    """Opens a report from the disk; in the end, nothing was asked of a host and nothing failed."""
    addresses: set[str] = set()
    seen: set[str] = set()

    def start(path: Path, width: int = 1280, dark: bool = False) -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": 860}, color_scheme="dark" if dark else "light"
        )
        page.on("request", lambda request: seen.add(request.url))
        page.on("console", lambda message: seen.add(message.text))
        page.on("pageerror", lambda error: seen.add(str(error)))
        addresses.add(path.resolve().as_uri())
        page.goto(path.resolve().as_uri())
        return page

    yield start
    assert seen == addresses


def points(page: Page, curve: str) -> list[int]:
    """How many points each run's line of a curve has."""
    drawn = page.locator(f'g[data-curve="{curve}"] path').all()
    return [len(re.split("[ML]", line.get_attribute("d"))) - 1 for line in drawn]


def test_figures_of_hardly_any_held_out_text_are_not_shown(tmp_path: Path) -> None:
    """They rise while the training does well, and were the largest curve."""
    run = made_up(tmp_path / "little")
    run.log(step=STEPS, bleu=30.0, chrf=50.0)
    for held_out, is_shown in ((57, False), (5000, True)):
        data = dataclasses.replace(run.data, held_out_tokens=held_out)
        history = History(dataclasses.replace(run, data=data))
        assert (facts(history)["bits per byte of unseen text"] != "–") is is_shown
        page = write_page([history], tmp_path / "report.html").read_text(encoding="utf-8")
        column = '<th scope="col">bits per byte of unseen text</th>'
        assert (column in page) is is_shown, "no empty column"
        assert ('"bits_per_byte":"unseen text"' in page) is is_shown, "no empty curve"
        assert ("<h3>BLEU</h3>" in page) is ("<h3>chrF</h3>" in page) is is_shown
        assert ("of unseen text" in page) is is_shown, "nor words about it"
        assert ">1.1495</td>" in page, "of the training text, in bits per byte, too"
        assert "training text" in page


def test_a_finished_run_says_how_to_talk_to_it(tmp_path: Path) -> None:
    run = made_up(tmp_path / "my run")
    page = write_report(run).read_text(encoding="utf-8")
    assert f"<code>python -m export &#x27;{run.path}&#x27; --out &#x27;models/my run&#x27;" in page
    assert "<code>python -m gptcore chat &#x27;models/my run&#x27;</code>" in page
    going_on = made_up(tmp_path / "going on", finished=False)
    assert "To use it" not in write_report(going_on).read_text(encoding="utf-8")


def test_a_curve_of_one_point_is_seen(opened, tmp_path: Path) -> None:
    """Its line has no length, and the key of the chart names it."""
    page = opened(write_report(made_up(tmp_path / "mine", steps=50)))
    expect(page.locator(".key").filter(has_text="training text")).to_be_visible()
    expect(page.locator('g[data-curve="train_loss"] circle')).to_be_visible()
    page.close()


def test_a_report_shows_every_figure_beside_earlier_runs(opened, tmp_path: Path) -> None:
    made_up(tmp_path / "early", learning_rate=0.01)
    made_up(tmp_path / "unfinished", finished=False)
    other = made_up(tmp_path / "other")
    other_data = dataclasses.replace(other.data, corpus_sha256="another corpus")
    dataclasses.replace(other, data=other_data).write_config()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "summary.json").write_text("{}")
    page = opened(write_report(made_up(tmp_path / "mine")))

    names = page.locator("tbody [data-run]").locator("xpath=..").all_inner_texts()
    assert [name.strip() for name in names] == ["mine", "early"]
    for curve, n in {"train_loss": 4, "loss": 20, "gradient_norm": 20}.items():
        assert points(page, curve) == [n, n], curve
    assert points(page, "bits_per_byte") == [4] * 4, "in two charts"
    assert page.locator('g[data-curve="bits_per_byte"] circle').count() == 16
    expect(page.locator("h1")).to_have_text("mine")
    row = page.locator("tbody tr").first
    for fact in ("finished", "1.1850", "1.1495", "102,400", "0:00:25", "106,816", "chats.jsonl"):
        expect(row).to_contain_text(fact)
    expect(page.get_by_role("region", name="Settings that differ")).to_contain_text("0.003")

    first = page.locator('g[data-curve="bits_per_byte"] circle').first
    ticks = lambda: page.locator("svg").first.locator("text").all_text_contents()  # noqa: E731
    place, by_step = first.get_attribute("cx"), ticks()
    page.get_by_label("time").check()
    assert first.get_attribute("cx") == place and "25 s" in ticks() and "25 s" not in by_step
    page.get_by_label("tokens read", exact=True).check()
    assert "100,000" in ticks()

    page.screenshot(path=SCREENSHOTS / "report.png", full_page=True)

    page.get_by_role("checkbox", name="early").uncheck()
    assert points(page, "loss") == [20]
    page.get_by_role("checkbox", name="early").check()
    chart = page.get_by_role("img", name=re.compile("^Unseen text by tokens read. mine"))
    chart.press("Home")
    expect(page.get_by_role("status").first).to_contain_text("tokens read 25,600")
    expect(page.get_by_role("status").first).to_contain_text("mine1.56early1.7")
    page.locator("figure summary").first.click()
    values = page.get_by_role("region", name="Values of Unseen")
    expect(values.locator("tbody tr")).to_have_count(4)
    page.close()


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_it_fits_and_follows_the_theme(opened, tmp_path: Path, width: int, dark: bool) -> None:
    made_up(tmp_path / ("a-rather-long-name-of-a-run" * 3), learning_rate=0.03)
    page = opened(write_report(made_up(tmp_path / "mine")), width, dark)
    page.locator("svg").first.hover()
    name = f"report-{width}-{'dark' if dark else 'light'}.png"
    page.screenshot(path=SCREENSHOTS / name, full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 300) == dark
    page.close()


@pytest.mark.parametrize("width", [1280, 1100, 390])
def test_a_table_of_runs_of_several_kinds_does_not_scroll(
    opened, tmp_path: Path, width: int
) -> None:
    long = made_up(tmp_path / ("a-rather-long-name-of-a-run" * 3))
    source = "a-book-about-how-to-sell-things.pdf and 3 other files"
    long = dataclasses.replace(long, data=dataclasses.replace(long.data, source=source))
    write_json(long.path / "summary.json", long.summary() | {"kept": 0.4, "parameters": 10**8})
    (long.checkpoints / "step-200").mkdir(parents=True)
    begun = made_up(tmp_path / "begun", steps=50, finished=False)
    page = opened(write_page([History(long), History(begun)], tmp_path / "report.html"), width)
    page.screenshot(path=SCREENSHOTS / f"report-runs-{width}.png")
    table = page.get_by_role("region", name="Runs")
    assert table.evaluate("region => region.scrollWidth - region.clientWidth") <= 0
    for text in (source, "of step 200, with 40% of those before the training", "100,000,000"):
        assert text in table.inner_text()
    page.close()


def test_what_a_model_or_a_name_says_is_text(opened, tmp_path: Path) -> None:
    """`opened` would see the requests and errors of markup that came alive."""
    path = tmp_path / "a <img src=x onerror=boom()> & ${b}"
    page = opened(write_report(made_up(path)))
    assert page.locator("h1").inner_text() == path.name
    samples = page.locator("details[open] .sample")
    given, written = (samples.locator(kind).all_inner_texts() for kind in ("dt", "dd"))
    assert given == ["given", "written"] * 2
    assert written == ["Who?", f" A {HOSTILE}\n\n## Step 3\n of 200", "And", "nothing"]
    above, below = (samples.nth(i).bounding_box() for i in range(2))
    assert above["y"] + above["height"] < below["y"], "there is room between two samples"
    assert page.locator("img:not(svg)").count() == 0
    assert page.locator("#samples summary").all_inner_texts() == [
        f"Step {n}" for n in (200, 150, 100, 50)
    ]
    page.close()


def test_a_run_that_has_hardly_begun_has_a_report(opened, tmp_path: Path) -> None:
    run = made_up(tmp_path / "mine", steps=0, finished=False)
    page = opened(write_report(run))
    expect(page.locator("main")).to_contain_text("Nothing has been measured yet")
    expect(page.locator(".state")).to_have_text("at step 0 of 200")
    run.log(step=10, loss=float("nan"), rate=0.1)
    (run.path / "summary.json").write_text('{"steps"')
    with open(run.path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 20, "lo\n\0\0\0\0\n{"step": 30, "loss": 3}}\n{"step": 20, "loss": 2.')
    page.close()
    page = opened(write_report(run))
    expect(page.locator(".state")).to_have_text("at step 10 of 200")
    assert points(page, "rate") == [1] and points(page, "loss") == []
    page.close()


@pytest.mark.slow
def test_real_runs_of_both_kinds_are_compared(
    opened, run: Run, translation_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(run.path), str(translation_run.path)]) == 0
    page = opened(tmp_path / "report.html")
    expect(page.locator(".state")).to_have_text("2 runs compared")
    assert points(page, "train_loss") == [2], "the translator's is not measured"
    assert points(page, "bits_per_byte") == [2, 2], "in two charts; the pairs hold out too little"
    assert points(page, "bleu") == []
    expect(page.get_by_role("region", name="Settings that differ")).to_contain_text("n_pairs")
    expect(page.locator("#samples .sample").first).not_to_contain_text("<|user|>")
    assert len(translation_run.samples()[0][1]) == 5
    page.close()


def test_very_many_lines_are_thinned(tmp_path: Path) -> None:
    run = made_up(tmp_path / "mine")
    line = '{"step": %d, "loss": %f, "rate": 0.001, "gradient_norm": %f, "tokens_per_s": 4000}\n'
    rows = [line % (n, 2 + n % 5 / 10, 1.0) for n in range(30_000)]
    text = "".join(rows) + '{"step": 15001, "val_loss": 2.5, "bits_per_byte": 1.25}\n'
    (run.path / "metrics.jsonl").write_text(text)
    path = write_report(run)
    assert path.stat().st_size < 300_000
    history = History(run)
    loss = history.curve("loss")
    assert len(loss["y"]) == MAX_POINTS and loss["step"][-1] > 29_950
    assert min(loss["low"]) == 1.0 and max(loss["high"]) == 1.2  # bits per byte
    assert history.curve("bits_per_byte")["y"] == [1.25]


def test_a_loss_of_smoothed_labels_is_called_so(tmp_path: Path) -> None:
    for name, smoothing in (("plain", 0.0), ("smoothed", 0.1)):
        run = made_up(tmp_path / name / "run", label_smoothing=smoothing)
        text = write_report(run).read_text(encoding="utf-8")
        assert ("training batch, labels smoothed" in text) == (smoothing > 0)


def test_what_cannot_be_read_beside_a_run_does_not_end_its_training(tmp_path: Path) -> None:
    run = made_up(tmp_path / "run")
    other = made_up(tmp_path / "other")
    assert [found.path.name for found in earlier(run)] == ["other"]
    (other.path / "config.json").unlink()
    (other.path / "config.json").mkdir()  # reading it is an error of the system
    assert earlier(run) == []


def test_only_the_newest_few_earlier_runs_are_shown(tmp_path: Path) -> None:
    for n in range(6):
        summary = made_up(tmp_path / f"run-{n}", steps=10).path / "summary.json"
        os.utime(summary, (1e9 + n, 1e9 + n))
    text = write_report(made_up(tmp_path / "mine")).read_text()
    assert [n for n in range(6) if f">run-{n}<" in text] == [2, 3, 4, 5]
    assert "Settings that differ" in text


def test_a_run_alone_differs_from_no_other(tmp_path: Path) -> None:
    assert "Settings that differ" not in write_report(made_up(tmp_path / "mine")).read_text()


def test_a_row_of_a_run_tells_of_the_weights_that_are_taken(tmp_path: Path) -> None:
    run = made_up(tmp_path / "mine")
    for step in (150, 200):
        (run.checkpoints / f"step-{step}").mkdir(parents=True)
    assert facts(History(run))["weights"] == "of step 200"
    run.log(step=150, val_loss=9.0, bits_per_byte=4.5, train_loss=7.0, kept=0.4)
    write_json(run.path / "summary.json", {"kept": 0.4})
    row = facts(History(run))
    assert row["weights"] == "of step 150, with 40% of those before the training"
    assert row["bits per byte of unseen text"] == "4.5000"
    assert row["bits per byte of the training text"] == "3.5000"


def test_a_run_stopped_between_two_logged_steps_is_at_the_saved_one(tmp_path: Path) -> None:
    run = made_up(tmp_path / "mine", steps=50, finished=False)
    (run.checkpoints / "step-57").mkdir(parents=True)
    row = facts(History(run))
    assert (row["state"], row["steps"], row["weights"]) == ("at step 57 of 200", "57", "of step 57")
    assert row["tokens/s"] == "4,096", "those read in the time, and not the last step's 4,000"


def test_a_training_writes_its_report_while_another_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, writing = made_up(tmp_path / "run"), Path.write_text

    def meanwhile(path: Path, *words: object, **named: object) -> int:
        n_written = writing(path, *words, **named)
        if path.name.startswith("report.html"):
            monkeypatch.setattr(Path, "write_text", writing)
            with ThreadPoolExecutor(1) as other:
                other.submit(write_page, [History(run)], run.path / "report.html").result()
        return n_written

    monkeypatch.setattr(Path, "write_text", meanwhile)
    assert "</html>" in write_report(run).read_text()
    assert not [*run.path.glob("report.html.*")]


def test_a_curve_is_drawn_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made_up(tmp_path / "cost_$5_vs_$6_")
    draw_loss(History(run))
    before = (run.path / "loss.png").read_bytes()

    def interrupted(_: Figure, path: Path, **__: object) -> None:
        path.write_bytes(before[:99])
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        draw_loss(History(run))
    assert (run.path / "loss.png").read_bytes() == before


@pytest.mark.parametrize(("held_out", "n_lines"), [(57, 1), (5000, 2)])
def test_the_drawn_loss_has_no_line_of_what_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_out: int, n_lines: int
) -> None:
    run, drawn, save = made_up(tmp_path / "run"), [], Figure.savefig

    def noted(figure: Figure, *words: object, **named: object) -> None:
        drawn.append(len(figure.axes[0].lines))
        save(figure, *words, **named)

    monkeypatch.setattr(Figure, "savefig", noted)
    data = dataclasses.replace(run.data, held_out_tokens=held_out)
    draw_loss(History(dataclasses.replace(run, data=data)))
    assert drawn == [n_lines]


def test_samples_come_back_as_they_were_written(tmp_path: Path) -> None:
    run, samples = made_up(tmp_path, 0), [("**Note:** the file", " is **open**."), ("\r\n\n> ", "")]
    run.log(step=7, bits_per_byte=1.0)
    run.add_samples(7, samples)
    assert run.samples() == [(7, samples)]
    run.forget_after(7)
    assert run.samples() == [(7, samples)]
    run.add_samples(7, samples[:1])  # of the weights that are mixed
    assert run.samples() == [(7, samples[:1])]
    assert "is **open**." in (run.path / "samples.md").read_text()
    (run.path / "samples.json").write_text("[[7, [")
    assert run.samples() == []


def test_mistakes_are_explained_in_one_line(tmp_path: Path, refused: Callable[..., str]) -> None:
    run = made_up(tmp_path / "mine", steps=10).path
    assert "no training run at" in refused(main, "report", run, tmp_path / "nowhere")
    assert "is a folder: name a file" in refused(main, "report", run, "--out", run)
    missing = tmp_path / "missing" / "report.html"
    assert "make it first" in refused(main, "report", run, "--out", missing)
