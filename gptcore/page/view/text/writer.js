// A base model's page: it continues a text in place. What it wrote last is tinted, and can be undone
// or tried again.

import { el } from "../dom.js";
import { Figures } from "../parts/figures.js";
import { showTints, tintLegend, whole } from "../parts/glass.js";
import { button, sendOnShiftEnter } from "../parts/inputs.js";
import { Notice } from "../parts/notice.js";
import { modelPicker, openWith } from "../parts/picker.js";
import { Settings } from "../parts/settings.js";
import { keep, recall, recallObject } from "../kept/values.js";
import { say } from "../words.js";

const LONGEST = 900_000; // bytes that are sent: a server refuses more than 1 MiB

// Returns as much of a text's end as may be sent.
function endOf(text) {
  let end = text;
  while (new TextEncoder().encode(JSON.stringify(end)).length > LONGEST) end = end.slice(Math.ceil(end.length / 8));
  return end.replace(/^[\udc00-\udfff]/, ""); // no half of a character
}

export class Writer {
  // `host`: {facts, ask}.
  constructor(host) {
    this.host = host;
    this.keys = ["text", "settings"].map((part) => `gptcore-${part}-${host.facts.name}`);
    this.before = []; // the texts that Undo brings back
    this.cleared = ""; // what Clear took away, until another Clear
    this.tokens = []; // of the last continuation, and where it begins
    this.begin = null;
    this.isTinted = false;
    this.box = el("textarea.text", { "aria-label": say("text"), placeholder: say("text.type") });
    this.box.value = recall(this.keys[0]) ?? "";
    this.box.addEventListener("input", () => this.edited());
    sendOnShiftEnter(this.box, () => this.continue());
    this.mirror = el("div.mirror", { "aria-hidden": "true" });
    this.sheet = el("div.sheet", {}, this.mirror, this.box);
    this.go = button("continue", () => this.continue(), ".primary");
    this.halt = button("stop", () => this.stop(), ".primary");
    this.undoIt = button("undo", () => this.undo());
    this.retryIt = button("retry", () => this.retry());
    this.clearIt = button("clear", () => this.clear());
    this.notice = new Notice();
    this.figures = new Figures();
    this.settings = new Settings(host.facts, {
      change: (settings) => keep(this.keys[1], JSON.stringify(settings)),
      lastSeed: () => this.last?.seed,
      models: this.picker(),
    });
    this.settings.show({ system: "", settings: recallObject(this.keys[1]) });
    const row = el("div.row.wrap", {}, this.go, this.halt, this.undoIt, this.retryIt, this.clearIt);
    const hint = el("small", {}, say("text.keys"));
    this.legend = tintLegend();
    const foot = el("div.foot", {}, this.notice.element, row, hint, this.legend, this.figures.element);
    const head = el("p.lead", {}, say("text.lead", { name: host.facts.name }));
    this.element = el("main.stage.writer", {}, head, this.sheet, foot);
    this.refresh();
  }

  // A text stays with its model, so that another one opens the page anew.
  picker() {
    const { facts, models } = this.host;
    const known = ({ models: here = [], others = [] }) => ({ names: here.map(({ name }) => name), others });
    const choices = {
      choose: openWith,
      look: models && (async () => known(await models())),
    };
    return modelPicker(known(facts), { model: facts.name, isChat: false }, choices);
  }

  get facts() {
    return this.host.facts;
  }

  // What Inspect looks at.
  what() {
    return this.box.value.trim();
  }

  get isBusy() {
    return this.writing !== undefined;
  }

  refresh() {
    const { isBusy, box, go, halt } = this;
    box.readOnly = isBusy;
    go.hidden = isBusy;
    halt.hidden = !isBusy;
    this.undoIt.disabled = isBusy || !(this.before.length || this.cleared);
    this.retryIt.disabled = isBusy || this.begin === null;
    this.clearIt.disabled = isBusy || !box.value;
    this.draw();
  }

  // The text again, behind the box, with the continuation set off.
  draw() {
    const { mirror, box, begin, tokens } = this;
    const start = begin ?? box.value.length;
    const written = el("mark.written", {}, box.value.slice(start));
    if (this.isTinted && tokens.length) showTints(written, tokens);
    mirror.replaceChildren(box.value.slice(0, start), written, "\n");
  }

  setText(text) {
    this.box.value = text;
    this.keep();
  }

  keep() {
    if (!keep(this.keys[0], this.box.value) && this.notice.element.hidden) this.notice.tell(say("text.unkept"));
  }

  edited() {
    this.keep();
    this.renew();
  }

  // Takes over the text that another tab has kept, unless one is being written here, or typed.
  reload({ key, newValue }) {
    if (key !== this.keys[0] || this.isBusy || document.hasFocus()) return;
    this.box.value = newValue ?? "";
    this.renew();
  }

  // Shows a text that is not the model's.
  renew() {
    Object.assign(this, { before: [], begin: null, tokens: [] });
    this.refresh();
  }

  tint(on) {
    this.isTinted = on;
    this.legend.hidden = !on;
    this.draw();
  }

  // ---- What a person does

  stop() {
    this.writing?.abort();
  }

  // Stops what is being written, and waits for its end.
  async settle() {
    this.stop();
    await this.done;
  }

  // Takes back what was written, then a Clear; another press brings back what that replaces.
  undo() {
    const last = this.before.pop();
    const text = last ?? this.cleared;
    if (last === undefined) this.cleared = this.box.value;
    this.setText(text);
    Object.assign(this, { begin: null, tokens: [] });
    this.refresh();
  }

  // Tries again; what was written before comes back if nothing does.
  async retry() {
    const [{ begin, tokens }, written] = [this, this.box.value];
    this.undo();
    const text = this.box.value;
    await this.continue();
    if (this.box.value !== text) return;
    this.before.push(text);
    this.setText(written);
    Object.assign(this, { begin, tokens });
    this.refresh();
  }

  clear() {
    Object.assign(this, { before: [], cleared: this.box.value });
    this.setText("");
    Object.assign(this, { begin: null, tokens: [] });
    this.figures.measure(null);
    this.refresh();
  }

  continue() {
    if (!this.isBusy) this.done = this.write(this.box.value);
    return this.done;
  }

  async write(text) {
    const { ask, facts } = this.host;
    const last = { n_prompt: 0 };
    this.writing = new AbortController();
    Object.assign(this, { begin: text.length, tokens: [], last });
    this.notice.tell("");
    this.refresh();
    const onEvent = (event) => {
      this.notice.follow(event);
      if (event.prompt) last.seed = event.seed;
      if (event.line) this.settings.describe(event.line);
      if (!event.tokens || event.prompt) return;
      Object.assign(last, event);
      this.tokens.push(...event.tokens);
      const isAtEnd = this.sheet.scrollTop + this.sheet.clientHeight > this.sheet.scrollHeight - 60;
      this.setText(whole(this.box.value + event.text, event.finish));
      this.draw();
      if (isAtEnd) this.sheet.scrollTop = this.sheet.scrollHeight;
      this.figures.measure(last, facts.block_size);
    };
    let failure = "";
    try {
      const prompt = endOf(text);
      await ask({ prompt, settings: this.settings.values(), begun: [] }, onEvent, this.writing.signal);
    } catch (error) {
      failure = this.writing.signal.aborted ? "" : error.message;
    }
    last.finish ??= this.writing.signal.aborted ? "stopped" : "broken";
    this.figures.measure(last, facts.block_size);
    this.writing = undefined;
    if (this.box.value === text) this.begin = null; // nothing came
    else this.before.push(text);
    this.refresh();
    const isFull = last.n_prompt + last.n_new > facts.block_size;
    if (failure) this.notice.tell(failure);
    else if (isFull) this.notice.tell(say("text.slid", { size: facts.block_size }), { isError: false });
  }
}
