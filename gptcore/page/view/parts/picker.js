// Which model answers, and which other one is compared with it.

import { el } from "../dom.js";
import { say } from "../words.js";

// `choose(name)` and `compare(name or null)` are called when a person chooses; without `compare` no
// other model can be compared. `others` are models of another kind, for which the page opens anew.
export function modelPicker(names, others, { model, rival, isChat }, { choose, compare }) {
  const none = el("option", { value: "" }, say("model.none"));
  const select = (id, key, options, value, act) => {
    const input = el("select", { id }, options);
    input.value = value ?? "";
    input.addEventListener("change", () => act(input.value || null));
    return el("div.field", {}, el("label", { for: id }, say(key)), input);
  };
  const pick = (name) => {
    if (others.includes(name)) location.search = `?${new URLSearchParams({ model: name })}`;
    else choose(name);
  };
  const option = (name) => el("option", { value: name }, name.replace("@", " · "));
  const foreign = others.length ? [el("optgroup", { label: say(isChat ? "model.texts" : "model.chats") }, others.map(option))] : [];
  return el(
    "div.models",
    {},
    select("model", "model", [...names.map(option), ...foreign], model, pick),
    ...(compare && names.length > 1 ? [select("rival", "model.compare", [none, ...names.filter((name) => name !== model).map(option)], rival, compare)] : []),
  );
}
