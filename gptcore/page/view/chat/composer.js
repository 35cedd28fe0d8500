// Where a person types: the box, Send and Stop, the notice above and the figures below.

import { el, icon } from "../dom.js";
import { say } from "../words.js";

const HIGHEST = 200; // pixels of the box

export class Composer {
  constructor({ send, stop, editLast }) {
    this.box = el("textarea.box", { rows: "1", "aria-label": say("message"), placeholder: say("type") });
    this.go = el("button.send", { type: "submit", "aria-label": say("send"), title: say("send") }, icon("send"));
    const halt = { type: "button", "aria-label": say("stop"), title: `${say("stop")} (Esc)`, onclick: stop };
    this.halt = el("button.send.halt", halt, icon("stop"));
    const submit = (event) => {
      event.preventDefault();
      if (!this.isBusy && this.box.value.trim()) send(this.box.value);
    };
    this.form = el("form.composer", { onsubmit: submit }, this.box, this.go, this.halt);
    this.notice = el("div.notice", { role: "alert", hidden: true });
    this.figures = el("div.figures");
    this.meter = el("div.meter", { role: "meter", "aria-label": say("context"), hidden: true }, el("span"));
    this.element = el("div.foot", {}, this.notice, this.form, el("div.under", {}, this.meter, this.figures));
    this.box.addEventListener("input", () => this.fit());
    this.box.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter" && !event.shiftKey) submit(event);
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

  setBusy(isBusy) {
    this.isBusy = isBusy;
    this.go.hidden = isBusy;
    this.halt.hidden = !isBusy;
    this.fit();
  }

  // Shows a notice until the next one; `undo`, if given, is offered with it.
  tell(text, { undo = null, isError = true } = {}) {
    this.notice.hidden = !text;
    this.notice.classList.toggle("error", isError);
    const take = async () => {
      this.tell("");
      await undo();
    };
    const buttons = [
      undo && el("button", { type: "button", onclick: take }, say("undo")),
      el("button", { type: "button", onclick: () => this.tell(""), "aria-label": say("close") }, icon("close")),
    ];
    this.notice.replaceChildren(el("span", {}, text), ...buttons.filter(Boolean));
  }

  // Shows how full the context is, and behind an ⓘ how fast the reply came.
  measure(node, blockSize) {
    const used = node?.n_prompt ? Math.min(node.n_prompt + node.n_new, blockSize) : 0;
    this.meter.hidden = !used;
    if (!used) return this.figures.replaceChildren();
    const values = { used, size: blockSize };
    for (const [name, value] of [["valuemin", 0], ["valuemax", blockSize], ["valuenow", used]])
      this.meter.setAttribute(`aria-${name}`, value);
    this.meter.title = say("context.used", values);
    this.meter.firstChild.style.width = `${(100 * used) / blockSize}%`;
    this.meter.classList.toggle("full", used > 0.9 * blockSize);
    const lines = [
      say("tokens", { n: node.n_new }),
      node.speed ? say("speed", { speed: Math.round(node.speed) }) : null,
      say("first", { ms: node.first_ms }),
      say("context.used", values),
      node.seed === undefined ? null : say("seed.drawn", { seed: String(node.seed) }),
    ].filter(Boolean);
    const finish = node.finish && node.finish !== "end" ? say(`finish.${node.finish}`) : "";
    const summary = el("summary", { "aria-label": say("figures"), title: say("figures") }, icon("info"));
    this.figures.replaceChildren(
      el("span.finish", { role: "status" }, finish),
      el("details", {}, summary, el("span", { "data-seed": String(node.seed ?? "") }, lines.join(" · "))),
    );
  }
}
