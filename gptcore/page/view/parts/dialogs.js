// Small windows over the page: what the model read, and the keys.

import { el, iconButton } from "../dom.js";
import { say } from "../words.js";
import { showPrompt } from "./glass.js";

function open(root, title, ...content) {
  const close = () => dialog.close();
  const head = el("div.head", {}, el("h2", {}, title), iconButton("close", say("close"), close));
  const dialog = el("dialog", { "aria-label": title }, head, ...content);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", ({ target }) => target === dialog && close());
  root.append(dialog);
  dialog.showModal();
}

export function showRead(root, { prompt, n_dropped: n }) {
  const tokens = el("div.tokens", { tabindex: "0", role: "region", "aria-label": say("what.it.read") });
  showPrompt(tokens, prompt);
  const count = el("p", {}, say("what.it.read.of", { n: prompt.length }));
  open(root, say("what.it.read"), count, n ? el("p.cut", {}, say("read.cut", { n })) : "", tokens);
}

const KEYS = {
  chat: {
    send: ["Enter"],
    line: ["Shift", "Enter"],
    stop: ["Escape"],
    last: ["↑"],
    search: ["Ctrl", "K"],
    new: ["Ctrl", "Shift", "O"],
    help: ["?"],
  },
  text: { continue: ["Shift", "Enter"], line: ["Enter"], stop: ["Escape"], help: ["?"] },
};

// `kind`: "chat" or "text".
export function showKeys(root, kind) {
  const rows = Object.entries(KEYS[kind]).flatMap(([name, keys]) => [
    el("dt", {}, ...keys.map((key) => el("kbd", {}, key))),
    el("dd", {}, say(`key.${name}`)),
  ]);
  open(root, say("help"), el("dl.keys", {}, rows));
}
