// Which model answers, and which other one is compared with it.

import { el } from "../dom.js";
import { say } from "../words.js";

// `choose(name)` and `compare(name or null)` are called when a person chooses.
export function modelPicker(names, { model, rival }, { choose, compare }) {
  const select = (id, key, options, value, act) => {
    const input = el("select", { id }, options.map(([name, text]) => el("option", { value: name }, text)));
    input.value = value ?? "";
    input.addEventListener("change", () => act(input.value || null));
    return el("div.field", {}, el("label", { for: id }, say(key)), input);
  };
  const all = names.map((name) => [name, name]);
  return el(
    "div.models",
    {},
    select("model", "model", all, model, choose),
    select("rival", "model.compare", [["", say("model.none")], ...all], rival, compare),
  );
}
