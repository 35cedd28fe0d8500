// A run's loss by step: of the text it learns from, and of text that is held out.

import { el } from "../dom.js";
import { say } from "../words.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, BELOW] = [720, 220, 44, 24];

function shape(name, attributes, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.textContent = text;
  return element;
}

// `loss`, `held_out`: lists of [step, nats per token].
export function chart({ loss, held_out: heldOut, steps }) {
  const values = [...loss, ...heldOut].map(([, value]) => value).filter(Number.isFinite);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (step) => LEFT + ((WIDTH - LEFT - 8) * step) / Math.max(1, steps);
  const y = (value) => 8 + ((HEIGHT - BELOW - 16) * (high - value)) / (high - low || 1);
  const line = (points, kind) =>
    shape("polyline", { class: kind, points: points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ") });
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": say("train.curves"), class: "curves loss" });
  for (const value of values.length ? [high, low] : [])
    svg.append(shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(2)));
  for (const [step, anchor] of [[0, "start"], [steps, "end"]])
    svg.append(shape("text", { x: x(step), y: HEIGHT - 6, "text-anchor": anchor }, step.toLocaleString()));
  svg.append(line(loss, "learned"), line(heldOut, "held"));
  for (const [step, value] of heldOut) svg.append(shape("circle", { class: "held", cx: x(step), cy: y(value), r: 3 }));
  const key = (kind) => el("span", {}, el(`i.${kind}`), say(`curve.${kind}`));
  return el("figure", {}, el("figcaption", {}, say("train.curves"), key("learned"), key("held")), svg);
}
