// Train: files of this machine become a model that the page then talks with. All that is shown comes
// from the server, which runs the commands; a reload, or another tab, shows the same.

import { el } from "../dom.js";
import { button, field, fileInput } from "../parts/inputs.js";
import { Notice } from "../parts/notice.js";
import { say, told } from "../words.js";
import { chart } from "./chart.js";
import { Choices } from "./choices.js";
import { reasons, stage, talk, written } from "./said.js";

const EVERY_MS = 1000;
const FILLED = ["me", "columns", "name", "minutes"]; // fields, of which the server has values
const SHOWN_PEOPLE = 12;

const FIELDS = { me: "train.me", columns: "train.columns", minutes: "train.minutes", init: "train.from", lora: "train.lora" };

const names = (text) => text.split(";").map((name) => name.trim()).filter(Boolean);

export class Train {
  // `host`: {state, put, act}, each of which returns what gptcore/page/train/workbench.py describes.
  // `old`: the room before, if any.
  constructor(host, old) {
    this.host = host;
    this.typed = Object.fromEntries(FILLED.map((name) => [name, old?.isFilled ? old.fields[name].value : undefined]));
    this.choices = new Choices(old?.choices.chosen);
    this.notice = new Notice();
    this.buttons = {
      plan: button("train.plan", () => this.begin("plan")),
      train: button("train.start", () => this.begin("train"), ".primary"),
      stop: button("stop", () => this.act("stop"), ".primary"),
      resume: button("train.resume", () => this.begin("train"), ".primary"),
      export: button("train.chat", () => this.chat(), ".primary"),
      keep: button("train.again", () => this.clear(true)),
      drop: button("train.drop", () => this.drop()),
    };
    this.report = el("a", { href: "train/report", target: "_blank" }, say("train.report"));
    this.command = el("pre");
    this.missing = el("section", { hidden: true }, el("p", {}, say("train.missing")), this.command);
    this.texts = el("ul.texts");
    this.unused = el("p", { "aria-live": "polite", hidden: true });
    this.whose = el("p", { id: "train-whose", "aria-live": "polite", hidden: true });
    this.otherwise = el("small", { hidden: true });
    this.look = el("pre.words", { tabindex: "0", "aria-label": say("train.look") });
    this.plan = el("pre", { tabindex: "0", "aria-label": say("train.plan") });
    this.choices.element.append(this.plan);
    this.choices.element.addEventListener("input", () => {
      this.outdated = this.state?.plan; // of other choices
      this.set(this.plan, "");
    });
    this.said = el("pre", { tabindex: "0" });
    this.title = el("h2", { hidden: true }); // the name of the run
    this.status = el("p", { role: "status" });
    this.found = el("pre.words", { hidden: true });
    this.bar = el("progress", { "aria-label": say("train.progress") }); // it goes to and fro until the server is heard
    this.curve = el("div");
    this.samples = el("div.samples");
    this.element = el("main.room.train", { "aria-label": say("room.train") });
    this.asking = el("div.asking", { hidden: true }, this.textsPart(), this.choices.element);
    this.element.append(
      el("h1", {}, say("train.title")),
      el("p", {}, say("train.lead")),
      this.missing,
      this.asking,
      this.title,
      (this.row = el("div.row.wrap", { hidden: true }, ...Object.values(this.buttons), this.report)),
      this.notice.element,
      this.status,
      this.found,
      this.bar,
      this.curve,
      this.samples,
      el("details", { hidden: true }, el("summary", {}, say("train.said")), this.said),
    );
  }

  textsPart() {
    this.files = fileInput({ multiple: true, id: "texts" }, (files) => this.take(files));
    const area = el("label.drop", { for: "texts" }, say("train.files"), this.files);
    area.addEventListener("dragover", (event) => {
      event.preventDefault();
      area.classList.add("over");
    });
    area.addEventListener("dragleave", () => area.classList.remove("over"));
    area.addEventListener("drop", (event) => {
      event.preventDefault();
      area.classList.remove("over");
      this.take([...event.dataTransfer.files]);
    });
    // A download is begun by a button: the keys that go through a list choose each in turn.
    this.dataset = el("select", { onchange: () => (this.fetch.disabled = !this.dataset.value) });
    this.fetch = button("train.download", () => this.begin("fetch", { dataset: this.dataset.value }));
    this.fetch.disabled = true;
    const text = (placeholder) => el("input", { type: "text", placeholder });
    this.me = text(say("train.me.hint"));
    this.columns = text(say("train.columns.hint"));
    this.fields = { me: this.me, columns: this.columns, ...this.choices.fields };
    for (const input of [this.me, this.columns]) input.addEventListener("change", () => this.lookAgain());
    this.people = el("div.row.wrap", { role: "group", "aria-labelledby": "train-whose" });
    const about = ["me", "columns"].map((name) => field(`train-${name}`, `train.${name}`, this[name]));
    this.about = el("details", {}, el("summary", {}, say("train.about")), ...about);
    return el(
      "section",
      {},
      el("h2", {}, say("train.texts")),
      area,
      el("div.dataset", {}, field("dataset", "train.dataset", this.dataset), this.fetch),
      this.texts,
      this.whose,
      this.people,
      this.otherwise,
      this.unused,
      this.about,
      this.look,
    );
  }

  // ---- What the server says

  enter() {
    if (!this.watching) this.watching = this.watch().finally(() => (this.watching = undefined));
  }

  async watch() {
    const hear = async () => {
      const state = await this.host.state();
      if (this.isLost) this.notice.tell(""); // that the server could not be reached
      return state;
    };
    do {
      this.isLost = !(await this.ask(hear));
      if (this.isLost) this.status.textContent = "";
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    } while (!this.element.hidden && this.element.isConnected);
  }

  // Asks the server, and shows what it answers; returns whether it did what was asked.
  async ask(question) {
    try {
      this.show(await question());
      return true;
    } catch (error) {
      this.notice.tell(error.message);
      this.bar.hidden ||= !this.state;
      return false;
    }
  }

  act(action, values = {}) {
    this.notice.tell("");
    return this.ask(() => this.host.act(action, values));
  }

  // A command waits for a look; meanwhile the next one is not asked for.
  async begin(kind, more = {}) {
    const ofTexts = { me: this.me.value.trim(), columns: this.columns.value.trim() };
    // A bad name or time keeps nobody from a look at the texts.
    const isRun = kind === "plan" || kind === "train";
    if (isRun) this.isBeginning = true;
    const isBegun = await this.act(kind, { ...ofTexts, ...(isRun && this.choices.values()), ...more });
    if (isRun) this.isBeginning = false;
    if (isRun && isBegun) this.outdated = null; // if it is refused, the plan is still of other choices
    if (this.state) this.show(this.state);
    return isBegun;
  }

  // Where the model is as new as the run, nothing is to be waited for.
  async chat() {
    if ((await this.begin("export")) && !this.state.doing) this.open(this.state);
  }

  open({ model }) {
    if (model) location.href = `?model=${encodeURIComponent(model)}`;
  }

  async take(files) {
    const reasons = new Set();
    for (const file of files) {
      try {
        const isRead = await file.slice(0, 1).arrayBuffer().catch(() => null);
        if (!isRead) throw new Error(say("train.unread", { name: file.name }));
        this.show(await this.host.put(file));
      } catch (error) {
        reasons.add(error.message);
      }
    }
    if (reasons.size < files.length) await this.begin("look");
    if (reasons.size) this.notice.tell([...reasons].join("\n"));
  }

  // Adds a person of a chat to those whose words are learned, or takes them away.
  choose(name) {
    const mine = names(this.me.value);
    this.me.value = (mine.includes(name) ? mine.filter((one) => one !== name) : [...mine, name]).join("; ");
    return this.begin("look");
  }

  // What was said of the texts was said of all of them, and is not said of the next ones.
  async remove(name) {
    if (!(await this.act("remove", { name }))) return;
    if (!this.state.texts.length) this.me.value = this.columns.value = "";
    await this.lookAgain();
  }

  async lookAgain() {
    if (this.state?.texts.length) await this.begin("look");
  }

  drop() {
    if (confirm(say("train.drop.sure", { path: this.state.run?.path ?? this.state.name }))) this.clear(false);
  }

  // What was said of the last files is not said of the next ones.
  async clear(keeps) {
    const { run } = this.state;
    if (!(await this.act("clear", { keeps }))) return;
    // Only now: what the server says while it clears is still of the last ones.
    Object.assign(this, { isFilled: false, typed: {} });
    this.choices.forget();
    this.show(this.state);
    if (keeps && run?.is_saved && !run.is_complete) this.notice.tell(say("train.kept", run), { isError: false });
  }

  // ---- What is shown

  show(state) {
    const { doing, run, missing } = state;
    const wasDoing = this.state?.doing;
    this.state = state;
    this.fill(state);
    this.missing.hidden = !missing;
    this.command.textContent = missing;
    this.asking.hidden = Boolean(missing) || Boolean(run) || doing === "train";
    this.row.hidden = false;
    this.showTexts(state);
    this.showPeople(state);
    this.showButtons(state);
    this.said.parentElement.hidden = !state.said;
    this.set(this.said, state.said);
    this.set(this.title, run || doing === "train" ? say("train.run", { name: state.begun }) : "");
    this.showRun(state);
    this.status.textContent = stage(state);
    const lines = ({ text, remedy }) => (remedy ? `${text}\n  try ${remedy}` : text);
    this.set(this.found, this.ofFields((run?.findings ?? []).map(lines).join("\n")));
    if (state.error && (wasDoing || !this.wasTold)) this.notice.tell(told(this.ofFields(state.error)));
    this.wasTold = Boolean(state.error);
    const fields = state.asking.length ? /--columns/ : /--(me|columns)/; // a name is chosen above them
    if (fields.test(state.error + Object.values(state.refused))) this.about.open = true;
    if (wasDoing === "export" && !doing) this.open(state);
    if (wasDoing === "fetch" && !doing) {
      this.dataset.value = "";
      if (!state.error) this.lookAgain(); // else a look would take the error's place
    }
  }

  // Offers what can be done now.
  showButtons({ doing, run, missing, texts, unusable, asking }) {
    const isIdle = !doing && !missing;
    const { plan, train, stop, resume, export: chat, keep, drop } = this.buttons;
    plan.hidden = train.hidden = !(isIdle || doing === "look") || Boolean(run);
    const waits = asking.length ? say("told.whose") : ""; // else the chat would be left out
    const why = texts.length ? told(this.ofFields(unusable)) || waits : say("told.no.texts");
    plan.disabled = train.disabled = Boolean(why) || this.isBeginning;
    plan.title = train.title = why;
    stop.hidden = !doing;
    resume.hidden = !isIdle || !run?.is_saved || run.is_complete;
    chat.hidden = !isIdle || !run?.is_saved;
    chat.textContent = say(talk(run ?? {}));
    keep.hidden = drop.hidden = !isIdle || !run;
    this.report.hidden = !run?.samples;
  }

  // Fills the fields once, so that nothing is taken from under a person's fingers.
  fill(state) {
    for (const name of this.isFilled ? [] : FILLED) this.fields[name].value = String(this.typed[name] ?? state[name]);
    this.isFilled = true;
    this.choices.show(state);
  }

  // The commands' own words name options and folders; here they are fields and models.
  ofFields(text) {
    return text
      .replace(/--me "(.*?)"/g, "“$1”")
      .replace(/ --lora \d+/g, ", --lora")
      .replace(/--init models\/([\w-]+)/g, (_, folder) => `--init: ${this.state.starts[folder]?.name ?? folder}`)
      .replace(/--(me|columns|minutes|init|lora)\b/g, (_, name) => `“${say(FIELDS[name])}”`);
  }

  // Sets the lines of a text only if it changed, so that a selection in it stays.
  set(element, text) {
    if (element.textContent !== text) element.replaceChildren(...text.split(/(?<=\n)/).map((line) => el("span", {}, line)));
    element.hidden = !text;
  }

  showTexts({ texts, datasets, look, plan, doing, refused, asking, unusable }) {
    const key = JSON.stringify([texts, doing, refused, asking]);
    if (key !== this.shownTexts) {
      const remove = (name) => {
        const button = { type: "button", disabled: Boolean(doing), "aria-label": say("train.remove", { name }), onclick: () => this.remove(name) };
        return el("button.small", button, say("train.remove.it"));
      };
      const size = (bytes) => say("train.kb", { kb: Math.ceil(bytes / 1000) });
      const told = (name) => ([given, files]) => {
        if (files.every((file) => asking.includes(file))) return el("small", {}, say("train.asking"));
        const [why, file] = [this.ofFields(given), files[0].slice(name.length + 1)];
        return el("small.refused", {}, say(file ? "train.refused.in" : "train.refused", { why, file, n: files.length }));
      };
      const line = (name) => reasons(name, refused).map(told(name));
      this.texts.replaceChildren(...texts.map(({ name, bytes }) => el("li", {}, el("span", {}, name), el("small", {}, size(bytes)), remove(name), ...line(name))));
      this.shownTexts = key;
    }
    if (this.dataset.options.length !== datasets.length + 1) {
      const option = ({ name, about }) => el("option", { value: name }, `${name}: ${about}`);
      this.dataset.replaceChildren(el("option", { value: "" }, say("train.dataset.none")), ...datasets.map(option));
    }
    this.files.disabled = this.dataset.disabled = Boolean(doing);
    this.fetch.disabled = Boolean(doing) || !this.dataset.value;
    const n = Object.keys(refused).length;
    const waits = asking.length ? "" : say("train.unusable"); // a question is asked above
    this.set(this.unused, unusable ? waits : n ? say("train.unused", { n }) : "");
    this.set(this.look, unusable ? "" : this.ofFields(look)); // its reasons stand beside the files
    this.set(this.plan, plan === this.outdated ? "" : this.ofFields(plan));
  }

  showPeople({ people, asking }) {
    const key = JSON.stringify(people);
    if (key !== this.shownPeople) {
      const choice = (name) => el("button.small", { type: "button", onclick: () => this.choose(name) }, name);
      this.people.replaceChildren(...people.slice(0, SHOWN_PEOPLE).map(choice));
      this.shownPeople = key;
    }
    this.set(this.whose, people.length ? say("train.whose") : "");
    this.people.hidden = !people.length;
    this.set(this.otherwise, asking.length ? say("train.whose.else", { columns: say("train.columns") }) : "");
    // The buttons stay when one is pressed, so that it keeps the keyboard's focus.
    const mine = names(this.me.value);
    for (const button of this.people.children) button.setAttribute("aria-pressed", String(mine.includes(button.textContent)));
  }

  showRun({ run, doing, is_stepping: isStepping }) {
    this.bar.hidden = !doing;
    if (isStepping && run?.step) Object.assign(this.bar, { max: run.steps, value: run.step });
    else this.bar.removeAttribute("value"); // it goes to and fro
    const key = run && JSON.stringify([run.step, run.held_out.length, run.samples]);
    if (key === this.shownRun) return;
    this.shownRun = key;
    this.curve.replaceChildren(...(run?.loss.length > 1 ? [chart(run)] : []));
    this.samples.replaceChildren(...(run?.samples ? written(run) : []));
  }
}
