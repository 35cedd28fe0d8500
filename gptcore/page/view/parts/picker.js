// Which model answers, and which other one is compared with it.

import { el } from "../dom.js";
import { say, shownName } from "../words.js";
import { field } from "./inputs.js";

// Opens the page anew, with a model.
export const openWith = (model) => (location.search = `?${new URLSearchParams({ model })}`);

// `known`: {names, others}; `others` are models of another kind, for which the page opens anew.
// `choose(name)` and `compare(name or null)` are called when a person chooses; without `compare` no
// other model can be compared. `look`, if it is there, returns what is known now: it is called when a
// person comes to the picker. Returns null where there is no choice.
export function modelPicker(known, { model, rival, isChat }, { choose, compare, look }) {
  if (known.names.length + known.others.length < 2) return null;
  const choice = (id, key, act) => field(id, key, el("select", { onchange: ({ target }) => act(target.value || null) }));
  const pick = (name) => {
    if (known.others.includes(name)) openWith(name);
    else choose(name);
  };
  const models = choice("model", "model", pick);
  const rivals = compare && known.names.length > 1 ? choice("rival", "model.compare", compare) : null;
  const option = (name) => el("option", { value: name }, shownName(name));
  const fill = (input, options, value) => {
    input.replaceChildren(...options);
    input.value = value ?? "";
  };
  const show = () => {
    const { names, others } = known;
    const foreign = others.length ? [el("optgroup", { label: say(isChat ? "model.texts" : "model.chats") }, others.map(option))] : [];
    fill(models.lastChild, [...names.map(option), ...foreign], model);
    const none = el("option", { value: "" }, say("model.none"));
    if (rivals) fill(rivals.lastChild, [none, ...names.filter((name) => name !== model).map(option)], rival);
  };
  const update = async () => {
    const found = await look();
    if (JSON.stringify(found) === JSON.stringify(known)) return;
    known = found;
    show();
  };
  show();
  const element = el("div.models", {}, models, rivals);
  if (look) for (const event of ["pointerenter", "focusin"]) element.addEventListener(event, () => update().catch(() => {}));
  return element;
}
