// What a person chooses for a training: what it begins with, how long it may take, and its name.

import { el } from "../dom.js";
import { field } from "../parts/inputs.js";
import { say } from "../words.js";

const MOST_MINUTES = 120; // of the slider; the number beside it may be larger

export class Choices {
  // `chosen`: {start, adapters}, in the room before, once a person has chosen them.
  constructor(chosen = {}) {
    this.chosen = chosen;
    this.start = el("select", { onchange: () => this.choose({ start: this.start.value }) });
    this.adapters = el("input", { type: "checkbox", onchange: () => this.choose({ adapters: this.adapters.checked }) });
    this.adapting = el("label.check", { hidden: true }, this.adapters, el("span", {}, say("train.lora")), el("small", {}, say("train.lora.why")));
    const unfit = "train-minutes-unfit";
    this.minutes = el("input", { type: "number", step: "any", required: true, "aria-describedby": unfit });
    this.unfit = el("small.refused", { id: unfit, "aria-live": "polite" });
    this.range = el("input", { type: "range", min: "1", max: String(MOST_MINUTES), "aria-label": say("train.minutes") });
    this.range.addEventListener("input", () => {
      this.minutes.value = this.range.value;
      this.showMinutes();
    });
    this.minutes.addEventListener("input", () => this.showMinutes());
    this.name = el("input", { type: "text", maxLength: 40 });
    this.fields = { name: this.name, minutes: this.minutes }; // of which the server has values
    const time = field("train-minutes", "train.minutes", this.minutes);
    time.replaceChildren(el("div.head", {}, ...time.children), this.range, this.unfit);
    const [start, name] = [field("train-start", "train.from", this.start), field("train-name", "train.name", this.name)];
    this.element = el("section", {}, el("h2", {}, say("train.time")), start, this.adapting, time, name);
  }

  choose(what) {
    Object.assign(this.chosen, what);
    this.show(this.state);
  }

  // What the server is asked for. A start that nobody chose is the server's to suggest.
  values() {
    return { name: this.name.value.trim(), minutes: Number(this.minutes.value), ...this.chosen };
  }

  forget() {
    this.chosen = {};
  }

  // Shows what can be chosen. What to begin with follows the files until a person chooses it.
  show(state) {
    this.state = state;
    const { start, adapters } = { ...state, ...this.chosen };
    const offered = { "": { name: say("train.from.new") }, ...state.starts };
    offered[start] ??= { name: start }; // gone meanwhile, which the server says
    const key = JSON.stringify(offered);
    if (key !== this.shownStarts) {
      this.start.replaceChildren(...Object.entries(offered).map(([value, { name }]) => el("option", { value }, name)));
      this.shownStarts = key;
    }
    if (this.start.value !== start) this.start.value = start;
    this.adapting.hidden = !offered[start].adapts;
    this.adapters.checked = adapters;
    this.showMinutes();
  }

  // Says beside the field what the server would say of its value, which has the same bounds.
  showMinutes() {
    const [min, max] = this.state.bounds;
    Object.assign(this.minutes, { min, max });
    this.range.value = this.minutes.value;
    const isFit = this.minutes.validity.valid;
    this.minutes.setAttribute("aria-invalid", String(!isFit));
    this.unfit.textContent = isFit ? "" : say("told.minutes", { fewest: min, most: max });
  }
}
