// A run's loss by step: of the text it learns from, and of text that is held out.

import { el, shape } from "../dom.js";
import { say } from "../words.js";

const [WIDEST, HEIGHT, LEFT, BELOW] = [720, 220, 64, 24]; // pixels

const LEAST = 0.001; // a text that is known by heart has losses far below, which say no more

// Returns a loss as a person reads it: with two digits that count.
export const rounded = (value) => (value > LEAST ? String(Number(value.toPrecision(2))) : `< ${LEAST}`);

// Returns the lowest and the highest value, and round ones between them that have room.
function ticks(low, high, y) {
  const digits = high / low > 100 ? [1] : [1, 2, 5];
  const between = [-2, -1, 0, 1].flatMap((power) => digits.map((digit) => digit * 10 ** power));
  const hasRoom = (value) => [low, high].every((end) => Math.abs(y(value) - y(end)) > 16);
  return [low, high, ...between.filter((value) => low < value && value < high && hasRoom(value))];
}

// `loss`, `held_out`: lists of [step, bits per byte]. The values fall fast and then slowly, so that
// their axis is logarithmic.
export function chart({ loss, held_out: heldOut, steps }) {
  const drawn = (points) => points.filter(([, value]) => Number.isFinite(value)).map(([step, value]) => [step, Math.max(LEAST, value)]);
  const [learned, held] = [drawn(loss), drawn(heldOut)];
  const values = [...learned, ...held].map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const width = Math.min(WIDEST, document.documentElement.clientWidth - 32); // else a phone shrinks the letters
  const x = (step) => LEFT + ((width - LEFT - 8) * step) / Math.max(1, steps);
  const y = (value) => 8 + ((HEIGHT - BELOW - 16) * Math.log(high / value)) / (Math.log(high / low) || 1);
  const line = (points, kind) =>
    shape("polyline", { class: kind, points: points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ") });
  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": say("train.curves"), class: "curves loss" });
  for (const value of values.length ? ticks(low, high, y) : [])
    svg.append(shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, rounded(value)));
  for (const [text, step, anchor] of [["0", 0, "start"], [say("train.steps", { steps }), steps, "end"]])
    svg.append(shape("text", { x: x(step), y: HEIGHT - 6, "text-anchor": anchor }, text));
  const middle = (HEIGHT - BELOW) / 2;
  svg.append(shape("text", { x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, "text-anchor": "middle" }, say("train.unit")));
  svg.append(line(learned, "learned"), line(held, "held"));
  for (const [step, value] of held) svg.append(shape("circle", { class: "held", cx: x(step), cy: y(value), r: 3 }));
  const key = (kind) => el("span", {}, el(`i.${kind}`), say(`curve.${kind}`));
  return el("figure", {}, el("figcaption", {}, say("train.curves"), key("learned"), held.length ? key("held") : null), svg);
}
