// What an empty chat shows: whom a person talks with, and what they may ask.

import { el } from "../dom.js";
import { say } from "../words.js";

export function emptyState({ name, examples = [] }, send) {
  const example = (text) => el("button.example", { type: "button", onclick: () => send(text) }, text);
  return el(
    "div.empty-state",
    {},
    el("h1", {}, say("empty.title", { name })),
    el("p", {}, say("empty.text")),
    el("div.examples", {}, examples.map(example)),
  );
}
