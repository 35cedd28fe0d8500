// The position table as curves: some of its columns along the positions.

import { el } from "../dom.js";
import { say } from "../words.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, DRAWN] = [720, 160, 6];

export function curves(data, [nRows, nColumns]) {
  const svg = document.createElementNS(SVG, "svg");
  const label = say("positions.curves");
  for (const [name, value] of [["viewBox", `0 0 ${WIDTH} ${HEIGHT}`], ["role", "img"], ["aria-label", label], ["class", "curves"]])
    svg.setAttribute(name, value);
  const most = data.reduce((peak, value) => Math.max(peak, Math.abs(value)), 1e-9);
  const count = Math.min(DRAWN, nColumns);
  for (let k = 0; k < count; k += 1) {
    const column = Math.floor((k * nColumns) / count);
    const point = (_, i) => {
      const x = (WIDTH * i) / Math.max(1, nRows - 1);
      return `${x.toFixed(1)},${(HEIGHT / 2) * (1 - (0.95 * data[i * nColumns + column]) / most)}`;
    };
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("points", Array.from({ length: nRows }, point).join(" "));
    line.setAttribute("class", `curve-${k}`);
    svg.append(line);
  }
  return el("figure", {}, el("figcaption", {}, label), svg);
}
