// Buttons and fields, as all rooms have them, and what Enter does in a box. The keys of a keyboard that
// chooses among Japanese or Chinese words come to none of these (see view.js).

import { el } from "../dom.js";
import { say } from "../words.js";

export const button = (key, onclick, kind = "") => el(`button${kind}`, { type: "button", onclick }, say(key));

// Puts an input under its label, and returns both in one element.
export function field(id, key, input) {
  input.id = id;
  return el("div.field", {}, el("label", { for: id }, say(key)), input);
}

function whenPressed(box, isMeant, act) {
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !isMeant(event)) return;
    event.preventDefault();
    act(event);
  });
}

// Lets Enter send what is typed, but not on a phone, which has no Shift+Enter for a line.
export function sendOnEnter(box, send) {
  whenPressed(box, ({ shiftKey }) => !shiftKey && !matchMedia("(pointer: coarse)").matches, send);
}

// Lets Shift+Enter or Ctrl+Enter send a text of several lines, in which Enter begins another one.
export function sendOnShiftEnter(box, send) {
  whenPressed(box, ({ shiftKey, ctrlKey }) => shiftKey || ctrlKey, send);
}

// A line for a name: Enter calls `take` with it, Escape `leave`. The page hears neither key: its own
// Escape stops a reply.
export function nameBox(attributes, { take, leave }) {
  const box = el("input", { type: "text", ...attributes });
  box.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") take(box.value.trim());
    if (event.key === "Escape") leave();
  });
  return box;
}

// An input of files, which `take` is called with. It is empty again at once: the same file, changed
// meanwhile, can be chosen once more.
export function fileInput(attributes, take) {
  const input = el("input", { type: "file", ...attributes });
  input.addEventListener("change", () => {
    const files = [...input.files];
    input.value = "";
    if (files.length) take(files);
  });
  return input;
}
