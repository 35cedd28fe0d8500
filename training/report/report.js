// The charts of a report: lines over a chosen axis, drawn anew for every width; no library.
"use strict";

const { runs, charts, axes } = JSON.parse(document.getElementById("data").textContent);
const figures = [...document.querySelectorAll("figure")];
const hidden = new Set();
let axis = Object.keys(axes)[0];

function svg(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  return element;
}

function html(parent, name, text, className) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return parent.appendChild(element);
}

function number(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 2 });
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size === 0 || size >= 0.001) return String(+value.toPrecision(4));
  return value.toExponential(2).replace(/\.?0+e/, "e");
}

function duration(seconds) {
  if (seconds < 60) return +seconds.toFixed(1) + " s";
  if (seconds < 3600) return +(seconds / 60).toFixed(1) + " min";
  return +(seconds / 3600).toFixed(2) + " h";
}

const position = value => axis === "seconds" ? duration(value) : number(value);

// The lines of a chart: a curve of a run, where it has the axis and is not hidden. A point is
// [x, y, low, high]; of a long run y is a mean, and low and high are around it.
function lines(chart) {
  const found = [];
  runs.forEach((run, n) => {
    for (const key in chart.curves) {
      const curve = run.curves[key];
      if (!curve || !curve[axis] || hidden.has(n)) continue;
      const points = curve[axis].map((x, i) => [x, curve.y[i], curve.low?.[i] ?? curve.y[i], curve.high?.[i] ?? curve.y[i]]);
      found.push({ n, key, name: run.name, style: chart.curves[key], points, isBand: "low" in curve });
    }
  });
  return found;
}

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(+(i * step).toPrecision(12));
  return found;
}

// Of time in round minutes and hours, not in hundreds of seconds.
function axisTicks(high, wanted) {
  const unit = axis !== "seconds" || high < 120 ? 1 : high < 7200 ? 60 : 3600;
  return ticks(0, high / unit, wanted).map(tick => tick * unit);
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const n of high / low > 30 ? [1, 2, 5] : [1, 1.5, 2, 3, 5, 7]) found.push(+(n * 10 ** power).toPrecision(6));
  }
  const inside = found.filter(tick => tick >= low && tick <= high);
  return inside.length > 7 ? inside.filter(tick => String(tick.toExponential())[0] === "1") : inside;
}

// From values to pixels, and where the grid is.
function scales(chart, all, width, height) {
  const xs = all.flatMap(line => line.points.map(point => point[0]));
  const ys = all.flatMap(line => line.points.flatMap(point => point.slice(2)));
  const bound = (f, values) => values.reduce((a, b) => f(a, b));
  const xHigh = bound(Math.max, xs) || 1;
  let low = bound(Math.min, ys), high = bound(Math.max, ys);
  const isLog = chart.logarithmic && low > 0 && high / low > 3;
  if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const to = isLog ? Math.log10 : value => value;
  const yTicks = isLog ? logTicks(low, high) : ticks(low, high, 4);
  const margin = (to(high) - to(low)) * 0.04;
  const labelled = runs.length > 1 && width > 480 ? 112 : 12;
  const left = 54, top = 10, bottom = height - 24, right = width - labelled;
  const y = value => bottom - (to(value) - to(low) + margin) / (to(high) - to(low) + 2 * margin) * (bottom - top);
  const x = value => left + value / xHigh * (right - left);
  return { x, y, yTicks, xTicks: axisTicks(xHigh, (right - left) / 90), left, right, top, bottom, labelled };
}

function draw(figure, chart) {
  const plot = figure.querySelector(".plot");
  plot.replaceChildren();
  figure.querySelector(".tip")?.remove();
  const all = lines(chart), width = plot.clientWidth, height = plot.clientHeight;
  if (!all.length) return void html(plot, "p", `No run shown has this by ${axes[axis]}.`, "unit");
  const at = scales(chart, all, width, height);
  const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": describe(chart, all) });
  for (const tick of at.yTicks) {
    image.append(svg("line", { class: "grid", x1: at.left, x2: at.right, y1: at.y(tick), y2: at.y(tick) }));
    image.append(svg("text", { x: at.left - 8, y: at.y(tick) + 4, "text-anchor": "end" }, number(tick)));
  }
  for (const tick of at.xTicks) {
    image.append(svg("text", { x: at.x(tick), y: height - 5, "text-anchor": "middle" }, position(tick)));
  }
  for (const line of [...all].reverse()) image.append(drawLine(line, at)); // the first on top
  if (at.labelled > 12) image.append(...labels(all, at));
  plot.append(image);
  follow(figure, image, chart, all, at);
}

function drawLine(line, at) {
  const group = svg("g", { style: `--n:${line.n}`, class: line.n ? "" : "first", "data-curve": line.key });
  const pixels = (x, y) => at.x(x).toFixed(1) + "," + at.y(y).toFixed(1);
  if (line.isBand) {
    const above = line.points.map(([x, , , high]) => pixels(x, high));
    const below = line.points.map(([x, , low]) => pixels(x, low)).reverse();
    group.append(svg("polygon", { points: [...above, ...below].join(" ") }));
  }
  const places = line.points.map(([x, y]) => [at.x(x).toFixed(1), at.y(y).toFixed(1)]);
  group.append(svg("path", { class: line.style, d: "M" + places.map(place => place.join(",")).join("L") }));
  if (line.style === "dots" || places.length === 1) { // a line of one point would not be seen
    const r = places.length > 60 ? 1.6 : 3;
    for (const [cx, cy] of places) group.append(svg("circle", { cx, cy, r }));
  }
  return group;
}

// Names at the ends of the lines, moved apart where they would meet.
function labels(all, at) {
  const last = new Map(all.map(line => [line.n, line])); // of a run, its last curve
  const placed = [...last.values()].map(line => ({ line, y: at.y(line.points.at(-1)[1]) + 4 }));
  placed.sort((a, b) => a.y - b.y);
  placed.forEach((label, i) => { if (i) label.y = Math.max(label.y, placed[i - 1].y + 14); });
  let limit = at.bottom;
  for (const label of [...placed].reverse()) { label.y = Math.min(label.y, limit); limit = label.y - 14; }
  return placed.map(({ line, y }) => {
    const group = svg("g", { style: `--n:${line.n}` });
    const name = line.name.length > 12 ? line.name.slice(0, 11) + "…" : line.name;
    group.append(svg("text", { class: "label", x: at.x(line.points.at(-1)[0]) + 8, y }, name));
    return group;
  });
}

function describe(chart, all) {
  const parts = all.map(({ name, key, points }) =>
    `${name}, ${chart.labels[key]}: ${number(points[0][1])} to ${number(points.at(-1)[1])}`);
  return `${chart.title} by ${axes[axis]}. ${parts.join("; ")}`;
}

// The value of a line at a place or, with a sign for it, at its point next to there.
function valueAt(line, x) {
  if (!line || x > line.points.at(-1)[0] || x < line.points[0][0]) return "";
  const nearest = line.points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
  return (nearest[0] === x ? "" : "≈ ") + number(nearest[1]);
}

// Values at the pointer, or at the place that the arrow keys move.
function follow(figure, image, chart, all, at) {
  const stops = [...new Set(all.flatMap(line => line.points.map(point => point[0])))].sort((a, b) => a - b);
  const cursor = svg("line", { class: "cursor", y1: at.top, y2: at.bottom, visibility: "hidden" });
  const tip = html(figure, "div", undefined, "tip");
  tip.setAttribute("role", "status");
  tip.hidden = true;
  image.append(cursor);
  let stop = stops.length - 1;

  function show() {
    const x = stops[stop], pixel = at.x(x);
    for (const side of ["x1", "x2"]) cursor.setAttribute(side, pixel);
    cursor.setAttribute("visibility", "visible");
    tip.replaceChildren();
    const table = html(tip, "table"), keys = Object.keys(chart.curves);
    const head = html(table, "tr");
    html(head, "td", `${axes[axis]} ${position(x)}`);
    for (const key of keys) html(head, "td", keys.length > 1 ? chart.labels[key] : "");
    for (const n of new Set(all.map(line => line.n))) {
      const row = html(table, "tr");
      html(html(row, "td"), "b", runs[n].name).style.setProperty("--n", n);
      for (const key of keys) html(row, "td", valueAt(all.find(line => line.n === n && line.key === key), x));
    }
    tip.hidden = false;
    const plot = image.parentElement, beside = pixel + 14 + tip.offsetWidth < figure.clientWidth;
    tip.style.left = Math.max(0, beside ? pixel + 14 : pixel - 14 - tip.offsetWidth) + "px";
    tip.style.top = plot.offsetTop + 12 + "px";
  }
  function hide() {
    tip.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  }
  function move(event) {
    const pixel = event.clientX - image.getBoundingClientRect().left;
    stop = stops.reduce((best, x, i) => Math.abs(at.x(x) - pixel) < Math.abs(at.x(stops[best]) - pixel) ? i : best, 0);
    show();
  }
  image.onpointermove = image.onpointerdown = move;
  image.onpointerleave = image.onblur = hide;
  image.onkeydown = event => {
    const moves = { ArrowLeft: stop - 1, ArrowRight: stop + 1, Home: 0, End: stops.length - 1 };
    if (event.key === "Escape") return hide();
    if (!(event.key in moves)) return;
    event.preventDefault();
    stop = Math.max(0, Math.min(stops.length - 1, moves[event.key]));
    show();
  };
}

// The numbers behind a chart, written when somebody opens them.
function fill(details, chart) {
  details.querySelector(".scroll")?.remove();
  if (!details.open) return;
  const scroll = html(details, "div", undefined, "scroll"), table = html(scroll, "table");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", `Values of ${chart.title}`);
  const head = html(html(table, "thead"), "tr"), body = html(table, "tbody"), all = lines(chart);
  for (const name of [axes[axis], ...all.map(line => `${line.name}, ${chart.labels[line.key]}`)]) {
    html(head, "th", name).scope = "col";
  }
  const rows = new Map();
  all.forEach((line, i) => {
    for (const [x, y] of line.points) rows.set(x, rows.get(x) || []).get(x)[i] = y;
  });
  for (const x of [...rows.keys()].sort((a, b) => a - b)) {
    const row = html(body, "tr");
    html(row, "th", position(x)).scope = "row";
    all.forEach((_, i) => html(row, "td", i in rows.get(x) ? number(rows.get(x)[i]) : ""));
  }
}

function update() {
  figures.forEach((figure, i) => {
    draw(figure, charts[i]);
    fill(figure.querySelector("details"), charts[i]);
  });
}

const choice = document.getElementById("axes");
choice.hidden = !figures.length || Object.keys(axes).length < 2;
for (const name in axes) {
  const label = html(choice, "label"), input = html(label, "input");
  Object.assign(input, { type: "radio", name: "axis", value: name, checked: name === axis });
  label.append(axes[name]);
  input.onchange = () => { axis = name; update(); };
}
for (const box of document.querySelectorAll("[data-run]")) {
  box.checked = true; // whatever the browser remembers
  box.onchange = () => { hidden[box.checked ? "delete" : "add"](+box.dataset.run); update(); };
}
figures.forEach((figure, i) => {
  const details = figure.querySelector("details");
  details.ontoggle = () => fill(details, charts[i]);
});
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; update(); } });
update();
