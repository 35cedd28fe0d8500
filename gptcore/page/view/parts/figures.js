// Below what a person types: how full the context is, and behind an ⓘ how fast the reply came.

import { el, icon } from "../dom.js";
import { say } from "../words.js";

export class Figures {
  constructor() {
    this.finish = el("span.finish", { role: "status" });
    this.line = el("span");
    const summary = el("summary", { "aria-label": say("figures"), title: say("figures") }, icon("info"));
    this.told = el("div.figures", { hidden: true }, this.finish, el("details", {}, summary, this.line));
    this.meter = el("div.meter", { role: "meter", "aria-label": say("context"), hidden: true }, el("span"));
    this.used = el("small");
    this.element = el("div.under", {}, this.meter, this.used, this.told);
  }

  // Shows the figures of a reply: {n_prompt, n_new, first_ms, speed, seed, finish}, or none.
  measure(reply, size) {
    const used = reply?.n_prompt ? Math.min(reply.n_prompt + reply.n_new, size) : 0;
    this.meter.hidden = this.told.hidden = !used;
    this.used.textContent = used ? `${used} / ${size}` : "";
    const finish = used && reply.finish && reply.finish !== "end" ? say(`finish.${reply.finish}`) : "";
    if (this.finish.textContent !== finish) this.finish.textContent = finish; // else it would be read aloud again
    this.line.textContent = "";
    if (!used) return;
    const values = { used, size };
    for (const [name, value] of [["valuemin", 0], ["valuemax", size], ["valuenow", used]])
      this.meter.setAttribute(`aria-${name}`, value);
    this.meter.title = say("context.used", values);
    this.meter.firstChild.style.width = `${(100 * used) / size}%`;
    this.meter.classList.toggle("full", used > 0.9 * size);
    const lines = [
      say("tokens", { n: reply.n_new }),
      reply.speed ? say("speed", { speed: Math.round(reply.speed) }) : null,
      say("first", { ms: reply.first_ms }),
      say("context.used", values),
      reply.seed === undefined ? null : say("seed.drawn", { seed: String(reply.seed) }),
    ].filter(Boolean);
    this.line.dataset.seed = reply.seed ?? "";
    this.line.textContent = lines.join(" · ");
  }
}
