// The position table as curves: some of its columns along the positions.

import { el, shape } from "../dom.js";
import { say } from "../words.js";

const [WIDTH, HEIGHT, DRAWN] = [720, 160, 6];

export function curves(data, [nRows, nColumns]) {
  const label = say("positions.curves");
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "curves" });
  const most = data.reduce((peak, value) => Math.max(peak, Math.abs(value)), 1e-9);
  const count = Math.min(DRAWN, nColumns);
  for (let k = 0; k < count; k += 1) {
    const column = Math.floor((k * nColumns) / count);
    const point = (_, i) => {
      const x = (WIDTH * i) / Math.max(1, nRows - 1);
      return `${x.toFixed(1)},${(HEIGHT / 2) * (1 - (0.95 * data[i * nColumns + column]) / most)}`;
    };
    svg.append(shape("polyline", { class: `curve-${k}`, points: Array.from({ length: nRows }, point).join(" ") }));
  }
  return el("figure", {}, el("figcaption", {}, label), svg);
}
