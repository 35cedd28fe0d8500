// The shapes of all that a decoder computes, from token ids to logits.

import { el } from "../dom.js";
import { say } from "../words.js";

// `config`: sizes of the model, by their names in gptcore/config.py; `n`: number of tokens.
export function shapes(config, n) {
  const { n_layer, n_head: H, n_kv_head: K, head_dim: D, n_embd: C, n_inner, vocab_size: V } = config;
  const rows = [
    ["shape.ids", [n]],
    ["shape.embeddings", [n, C]],
    ["shape.queries", [H, n, D], true],
    ["shape.keys", [K, n, D], true],
    ["shape.values", [K, n, D], true],
    ["shape.scores", [H, n, n], true],
    ["shape.mixed", [n, H * D], true],
    ["shape.attention", [n, C], true],
    ["shape.inner", [n, n_inner], true],
    ["shape.block", [n, C], true],
    ["shape.norm", [n, C]],
    ["shape.logits", [n, V]],
  ];
  const row = ([key, shape, isLayered]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, say(key)),
      el("td", {}, el("code", {}, shape.join(" × "))),
      el("td", {}, isLayered ? say("shape.times", { n: n_layer }) : ""),
    );
  return el("table.shapes", {}, el("tbody", {}, rows.map(row)));
}
