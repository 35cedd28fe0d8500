// Heat maps: a number for each pair of a row and a column, drawn on a canvas. Cells that are masked
// are hatched, so that they are told from zeros. The cell under the pointer, or chosen with the arrow
// keys, is told in words.

import { el } from "../dom.js";
import { say } from "../words.js";

// Nine colours of viridis (van der Walt and Smith, matplotlib, CC0), from low to high.
const COLOURS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
const STOPS = COLOURS.map((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
const SMALLEST_LABEL = 12; // pixels of a cell beside which a name fits
const ROW = 16; // pixels of the rows of a map with more columns than rows

// A map with names, a scale and words. `values`: numbers by row; `isMasked(i, j)`: whether a cell has
// none; `curve` maps shares from 0 to 1 to colours.
export function heatMap({ width = 720, isMasked = () => false, ...map }) {
  const { values, rows, columns, label } = map;
  const [nRows, nColumns] = [rows.length, columns.length];
  const { canvas, size, height, limits } = paint({ ...map, isMasked, width }, 4, Math.ceil(devicePixelRatio));
  const said = el("p.cell", { role: "status" });
  const chosen = { i: nRows - 1, j: 0 };
  const mark = el("span.mark", { hidden: true });
  Object.assign(mark.style, { width: `${size}px`, height: `${height}px` });
  const choose = (row, column) => {
    const [i, j] = [clamp(row, nRows), clamp(column, nColumns)];
    Object.assign(chosen, { i, j });
    const value = values[i * nColumns + j].toPrecision(3);
    said.textContent = say(isMasked(i, j) ? "cell.masked" : "cell", { from: rows[i], to: columns[j], value });
    mark.style.translate = `${j * size}px ${i * height}px`;
    mark.hidden = false;
  };
  canvas.tabIndex = 0;
  const point = ({ offsetX: x, offsetY: y }) => choose(Math.floor(y / height), Math.floor(x / size));
  for (const event of ["pointermove", "pointerdown"]) canvas.addEventListener(event, point); // a finger only taps
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(chosen.i + step[0], chosen.j + step[1]);
  });
  const names = (kind, all, cell) => {
    if (cell < SMALLEST_LABEL) return [];
    const list = el(`ol.names.${kind}`, { "aria-hidden": "true" }, all.map((name) => el("li", {}, el("span", {}, name))));
    list.style.setProperty("--cell", `${cell}px`);
    return [list];
  };
  const picture = el("div.picture", {}, canvas, mark);
  const grid = el("div.map", {}, ...names("rows", rows, height), picture, ...names("columns", columns, size));
  return el("figure", {}, el("figcaption", {}, label), el("div.wide", {}, grid), scaleOf(limits), said);
}

// A map as a small picture, without names.
export const smallMap = (map) => paint(map, 1, 1).canvas;

// Returns a map's picture, at most `width` pixels wide but for cells of `least` pixels, the sizes of a
// cell, and the lowest and the highest value.
function paint({ values, rows, columns, isMasked, label, width, curve = (share) => share }, least, scale) {
  const [nRows, nColumns] = [rows.length, columns.length];
  const size = Math.max(least, Math.min(26, Math.floor(width / nColumns)));
  const height = nColumns > nRows ? Math.max(size, Math.min(ROW, Math.floor(width / nRows))) : size;
  const canvas = el("canvas", { role: "img", "aria-label": label });
  Object.assign(canvas, { width: nColumns * size * scale, height: nRows * height * scale });
  Object.assign(canvas.style, { width: `${nColumns * size}px`, height: `${nRows * height}px` });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const limits = draw(context, values, [nRows, nColumns], [size, height], isMasked, curve);
  return { canvas, size, height, limits };
}

const clamp = (i, n) => Math.max(0, Math.min(n - 1, i));

// Which colours the lowest and the highest value have.
function scaleOf([low, high]) {
  const bar = el("span.colours");
  bar.style.background = `linear-gradient(to right, ${COLOURS.join(", ")})`;
  return el("p.scale", {}, low.toPrecision(2), bar, high.toPrecision(2));
}

function draw(context, values, [nRows, nColumns], [width, height], isMasked, curve) {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < nRows; i += 1)
    for (let j = 0; j < nColumns; j += 1) {
      if (isMasked(i, j)) continue;
      low = Math.min(low, values[i * nColumns + j]);
      high = Math.max(high, values[i * nColumns + j]);
    }
  for (let i = 0; i < nRows; i += 1)
    for (let j = 0; j < nColumns; j += 1) {
      const masked = isMasked(i, j);
      const share = high > low ? (values[i * nColumns + j] - low) / (high - low) : 0;
      context.fillStyle = masked ? "rgb(128 128 128 / 0.14)" : colour(curve(share));
      context.fillRect(j * width, i * height, width, height);
      if (masked && width >= 8) hatch(context, j * width, i * height, width);
    }
  return [low, high];
}

function colour(share) {
  const at = share * (STOPS.length - 1);
  const [below, above] = [STOPS[Math.floor(at)], STOPS[Math.ceil(at)]];
  const mixed = below.map((value, k) => Math.round(value + (above[k] - value) * (at % 1)));
  return `rgb(${mixed.join(" ")})`;
}

function hatch(context, x, y, size) {
  context.strokeStyle = "rgb(128 128 128 / 0.45)";
  context.beginPath();
  context.moveTo(x + 2, y + size - 2);
  context.lineTo(x + size - 2, y + 2);
  context.stroke();
}
