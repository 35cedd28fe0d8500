// Where a person types: the box, Send and Stop.

import { el, icon } from "../dom.js";
import { sendOnEnter } from "../parts/inputs.js";
import { say } from "../words.js";

const HIGHEST = 200; // pixels of the box

export class Composer {
  constructor({ send, stop, editLast }) {
    this.box = el("textarea.box", { rows: "1", "aria-label": say("message"), placeholder: say("type") });
    this.go = el("button.send.primary", { type: "submit", "aria-label": say("send"), title: say("send") }, icon("send"));
    const halt = { type: "button", "aria-label": say("stop"), title: `${say("stop")} (Esc)`, onclick: stop };
    this.halt = el("button.send.primary.halt", halt, icon("stop"));
    const submit = (event) => {
      event.preventDefault();
      if (!this.isBusy && this.box.value.trim()) send(this.box.value);
    };
    this.element = el("form.composer", { onsubmit: submit }, this.box, this.go, this.halt);
    this.box.addEventListener("input", () => this.fit());
    sendOnEnter(this.box, submit);
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "ArrowUp" && !this.box.value) editLast(event);
    });
    this.setBusy(false);
  }

  fit() {
    this.go.disabled = !this.box.value.trim();
    this.box.style.height = "auto";
    const { scrollHeight } = this.box; // 0 while it is not in the document
    if (scrollHeight) this.box.style.height = `${Math.min(scrollHeight, HIGHEST)}px`;
  }

  set(text) {
    this.box.value = text;
    this.fit();
  }

  // Takes the focus, unless somebody types elsewhere.
  invite() {
    const isElsewhere = document.activeElement?.matches("input, textarea, select");
    if (!isElsewhere) this.box.focus({ preventScroll: true });
  }

  setBusy(isBusy) {
    this.isBusy = isBusy;
    this.go.hidden = isBusy;
    this.halt.hidden = !isBusy;
    this.fit();
  }
}
