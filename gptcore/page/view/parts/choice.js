// A labelled list to choose from, in a part of the page that is drawn anew after each choice.

import { el } from "../dom.js";
import { say } from "../words.js";

// `options`: [value, text]; `act(value)` draws anew, and may take its time; `host` is what is redrawn.
export function choice(host, id, key, options, value, act) {
  const input = el("select", { id }, options.map(([name, text]) => el("option", { value: String(name) }, text)));
  input.value = String(value);
  input.addEventListener("change", async () => {
    await act(input.value);
    host.querySelector(`#${id}`)?.focus();
  });
  return el("div.row", {}, el("label", { for: id }, say(key)), input);
}

// The options 0 ... n - 1, counted from 1.
export const counted = (n) => [...Array(n).keys()].map((i) => [i, String(i + 1)]);
