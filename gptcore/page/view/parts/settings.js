// The settings of a chat: sliders, stop texts, a schema of replies, the system prompt, and presets.

import { el } from "../dom.js";
import { keep, recallObject } from "../kept/values.js";
import { say, told } from "../words.js";
import { button, field, nameBox } from "./inputs.js";

const KEY = "gptcore-presets";
const OF_ONE_REPLY = ["max_tokens", "seed"]; // no preset holds or changes them
const PRESETS = {
  precise: { temperature: 0.2, top_k: 20 },
  balanced: {},
  playful: { temperature: 1.1, top_k: 0, top_p: 0.95 },
};

// `facts.settings` describes each: {name, lowest, highest, slider: [from, to] or null, step, default}.
// With `facts.schemas` replies may be bound to a JSON schema, which the server checks.
export class Settings {
  // `models`: an element that chooses among several models, if there are any.
  constructor(facts, { change, lastSeed, models = null }) {
    this.facts = facts;
    this.change = change;
    this.inputs = {};
    const area = (more) => el("textarea", { oninput: () => this.changed(), ...more });
    const usual = facts.usual_system; // of a chat without a system prompt
    const hint = usual ? say("system.usual", { usual }) : say("optional");
    this.system = area({ rows: "3", placeholder: hint });
    this.stop = area({ rows: "2", placeholder: say("stop.hint") });
    this.schema = area({ rows: "3", placeholder: '{"type": "object", ...}', spellcheck: "false" });
    const [shown, folded] = [facts.settings.slice(0, 2), facts.settings.slice(2)];
    const again = button("seed.again", () => this.useSeed(lastSeed()), ".small");
    this.presets = el("div.row.wrap");
    this.element = el(
      "aside.settings",
      { "aria-label": say("settings") },
      el("h2", {}, say("settings")),
      ...(models ? [models] : []),
      this.presets,
      ...shown.map((setting) => this.slider(setting)),
      ...(facts.chat ? [field("system", "system", this.system)] : []),
      el(
        "details",
        {},
        el("summary", {}, say("more.settings")),
        ...folded.map((setting) => this.slider(setting)),
        again,
        field("stop", "stop.texts", this.stop),
        ...(facts.schemas && facts.chat ? [field("schema", "schema", this.schema)] : []),
      ),
    );
    if (facts.api) {
      const url = new URL("v1", document.baseURI).href;
      this.element.append(el("small", {}, el("a", { href: facts.api }, say("api")), ` ${say("api.openai", { url })}`));
    }
    this.device = el("small.device");
    this.describe(facts.line ?? "");
    this.element.append(this.device);
    this.showPresets();
  }

  // Says what the model runs on.
  describe(line) {
    this.device.textContent = told(line);
  }

  slider(setting) {
    const { name, slider, step } = setting;
    const value = el("input", { type: "number", step: String(step), id: `n-${name}`, "aria-label": say(`set.${name}`) });
    const range = slider && el("input", { type: "range", id: `r-${name}`, "aria-label": say(`set.${name}`) });
    if (slider) Object.assign(range, { min: slider[0], max: slider[1], step });
    const bounds = el("small", { "aria-live": "polite" });
    const take = (text) => {
      const given = text === "" || !Number.isFinite(Number(text)) ? setting.default : Number(text);
      const whole = step === 1 ? Math.round(given) : given;
      const { lowest } = setting;
      const highest = Math.min(setting.highest, Number.MAX_SAFE_INTEGER);
      const taken = Math.min(highest, Math.max(lowest, whole));
      this.set(name, taken);
      bounds.textContent = taken === whole ? "" : say("set.bounds", { lowest, highest });
      this.changed();
    };
    value.addEventListener("change", () => take(value.value)); // an emptied field: the default
    range?.addEventListener("input", () => (value.value = range.value));
    range?.addEventListener("change", () => take(range.value)); // once it is let go
    this.inputs[name] = { value, range, bounds };
    const label = el("label", { for: `n-${name}` }, say(`set.${name}`));
    const head = el("div.head", {}, label, value);
    return el("div.field", {}, head, range, el("small", {}, say(`help.${name}`)), bounds);
  }

  set(name, number) {
    const { value, range, bounds } = this.inputs[name];
    bounds.textContent = ""; // of the number before
    value.value = String(number);
    if (range) range.value = String(number);
  }

  // Shows the settings of a chat; what it does not say has its default.
  show({ system, settings }) {
    for (const setting of this.facts.settings) this.set(setting.name, settings[setting.name] ?? setting.default);
    this.showTexts(settings);
    this.system.value = system;
  }

  showTexts({ stop, schema }) {
    this.stop.value = (stop ?? []).join("\n");
    this.schema.value = schema ?? "";
  }

  // What differs from this model's defaults: another one, which may answer beside it, has its own.
  values() {
    const found = {};
    for (const { name, default: usual } of this.facts.settings) {
      const number = Number(this.inputs[name].value.value);
      if (number !== usual) found[name] = number;
    }
    const schema = this.schema.value.trim();
    return { ...found, stop: this.stop.value.split("\n").filter(Boolean), ...(schema && { schema }) };
  }

  changed() {
    this.change(this.values(), this.system.value);
  }

  useSeed(seed) {
    if (seed === undefined || !this.inputs.seed) return;
    this.set("seed", seed);
    this.changed();
  }

  // ---- Presets: three that are always there, of sliders alone, and a person's own

  showPresets() {
    const use = (values) => () => {
      for (const { name, default: usual } of this.facts.settings)
        if (!OF_ONE_REPLY.includes(name)) this.set(name, values[name] ?? usual);
      if (values.stop) this.showTexts(values); // a person's own
      this.changed();
    };
    const drop = (name) => () => {
      const own = recallObject(KEY); // as another tab may have left it
      delete own[name];
      this.keepOwn(own);
    };
    const preset = (name, values) => el("button.small", { type: "button", onclick: use(values) }, name);
    this.presets.replaceChildren(
      ...Object.entries(PRESETS).map(([name, values]) => preset(say(`preset.${name}`), values)),
      ...Object.entries(recallObject(KEY)).map(([name, values]) =>
        el("span.own", {}, preset(name, values), el("button.small", { type: "button", onclick: drop(name), "aria-label": say("preset.drop", { name }) }, "×")),
      ),
      el("button.small", { type: "button", onclick: () => this.nameOwn() }, `+ ${say("preset.keep")}`),
    );
  }

  nameOwn() {
    const take = (name) => {
      if (!name) return;
      const kept = Object.entries(this.values()).filter(([setting]) => !OF_ONE_REPLY.includes(setting));
      this.keepOwn({ ...recallObject(KEY), [name]: Object.fromEntries(kept) });
    };
    const hint = say("preset.name");
    const box = nameBox({ "aria-label": hint, placeholder: hint, maxlength: "30" }, { take, leave: () => this.showPresets() });
    this.presets.lastChild.replaceWith(box);
    box.focus();
  }

  keepOwn(own) {
    keep(KEY, JSON.stringify(own));
    this.showPresets();
  }
}
