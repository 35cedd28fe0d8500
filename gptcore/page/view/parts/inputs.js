// A button and a labelled field, as all rooms have them.

import { el } from "../dom.js";
import { say } from "../words.js";

export const button = (key, onclick, kind = "") => el(`button${kind}`, { type: "button", onclick }, say(key));

// Puts an input under its label, and returns both in one element.
export function field(id, key, input) {
  input.id = id;
  return el("div.field", {}, el("label", { for: id }, say(key)), input);
}
