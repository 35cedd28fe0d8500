// Which model answers, and which other one is compared with it.

import { el } from "../dom.js";
import { say } from "../words.js";

// `choose(name)` and `compare(name or null)` are called when a person chooses; without `compare` no
// other model can be compared. `others` are models of another kind, for which the page opens anew.
export function modelPicker(names, others, { model, rival }, { choose, compare }) {
  const select = (id, key, options, value, act) => {
    const input = el("select", { id }, options.map(([name, text]) => el("option", { value: name }, text)));
    input.value = value ?? "";
    input.addEventListener("change", () => act(input.value || null));
    return el("div.field", {}, el("label", { for: id }, say(key)), input);
  };
  const pick = (name) => {
    if (others.includes(name)) location.search = `?${new URLSearchParams({ model: name })}`;
    else choose(name);
  };
  const [own, foreign] = [names, others].map((some) => some.map((name) => [name, name]));
  return el(
    "div.models",
    {},
    select("model", "model", [...own, ...foreign], model, pick),
    ...(compare && names.length > 1 ? [select("rival", "model.compare", [["", say("model.none")], ...own], rival, compare)] : []),
  );
}
