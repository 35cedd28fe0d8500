// Inspect: how the model reads a text. Its tokens, the likeliest tokens after each, the attention of
// every head, embeddings and positions, and the shapes all the way through.

import { el } from "../dom.js";
import { choice, counted } from "../parts/choice.js";
import { likely, visible } from "../parts/glass.js";
import { heatMap, smallMap } from "../parts/heatmap.js";
import { button, sendOnEnter } from "../parts/inputs.js";
import { Notice } from "../parts/notice.js";
import { say } from "../words.js";
import { curves } from "./curves.js";
import { shapes } from "./shapes.js";

const PICTURES = ["attention", "before", "after", "qkv", "norms", "embeddings", "positions"];
const COLUMNS = 64; // channels that are drawn of embeddings
const ADDED = ["sinusoidal", "learned"]; // positions that are added to the embeddings

export class Inspect {
  // `host`: {facts, inspect}; `host.inspect({what, layer, model, untrained})` gives what
  // gptcore/page/inspect.py tells, its arrays as {shape, data}. `host.isHere()`, if it is there, says
  // whether that downloads nothing large. `old`: the room before, if any.
  constructor(host, old) {
    Object.assign(this, { host, typed: old?.box?.value, seen: null, layer: 0, head: 0, picture: "attention", at: 0, untrained: false });
    this.element = el("main.room", { "aria-label": say("room.inspect") });
  }

  // Opens on the current conversation or text of the model that is chosen.
  async enter(stage) {
    if (this.facts?.name !== stage.facts.name || !this.facts.inspect) this.build(stage.facts);
    if (!this.facts.inspect) return;
    const what = stage.what();
    this.current = () => stage.what();
    this.again.hidden = !what.length;
    if (JSON.stringify(what) === this.opened) return;
    this.opened = JSON.stringify(what);
    this.box.value = this.typed || (what.length ? "" : say("inspect.example"));
    this.typed = "";
    if ((await this.host.isHere?.()) !== false) await this.look(this.box.value || what); // else a person asks for it
  }

  build(facts) {
    Object.assign(this, { facts, opened: null, untrained: false });
    const title = el("h1", {}, say("inspect.title", { name: facts.name }));
    if (!facts.inspect) {
      const command = el("pre", {}, `python -m export inspect ${facts.folder}`);
      return this.element.replaceChildren(title, el("p", {}, say("inspect.missing")), command);
    }
    this.layer = Math.min(this.layer, facts.config.n_layer - 1);
    this.wanted = { layer: this.layer, untrained: false };
    this.notice = new Notice();
    this.box = el("textarea", { rows: "2", "aria-label": say("inspect.text"), placeholder: say("inspect.type") });
    sendOnEnter(this.box, () => this.look(this.box.value));
    const go = button("inspect.look", () => this.look(this.box.value), ".primary");
    this.again = button("inspect.conversation", () => this.look(this.current()));
    this.results = el("div.results", { hidden: true });
    const row = el("div.row.wrap", {}, go, this.again);
    return this.element.replaceChildren(title, el("p", {}, say("inspect.lead")), this.box, row, this.notice.element, this.results);
  }

  // `what`: a text, messages, or the ids of tokens.
  // `changes`: of the layer and the weights, which count once their picture is here.
  async look(what, { keeps = false, ...changes } = {}) {
    const asked = (this.asked = Symbol()); // an earlier look may end later: it shows nothing then
    try {
      this.notice.tell(say("inspect.looking"), { isError: false });
      const follow = (event) => this.notice.follow(event);
      const wanted = (this.wanted = { ...this.wanted, ...changes });
      const seen = await this.host.inspect({ what, ...wanted, model: this.facts.name }, follow);
      if (asked !== this.asked) return;
      const { n_dropped, n_cut } = keeps ? this.seen : seen; // of ids nothing is left out
      Object.assign(this, wanted, { seen: { ...seen, n_dropped, n_cut } });
      this.notice.tell("");
      const left = [n_dropped && say("inspect.dropped", { n: n_dropped }), n_cut && say("inspect.cut", { n: n_cut })];
      if (left.some(Boolean)) this.notice.tell(left.filter(Boolean).join(" "), { isError: false });
    } catch (error) {
      if (asked !== this.asked) return;
      this.notice.tell(error.message);
      this.wanted = { layer: this.layer, untrained: this.untrained };
      if (typeof what[0] === "number") return this.show(); // the picture that was here stays
      this.seen = null;
    }
    this.results.hidden = !this.seen;
    if (!this.seen) return this.results.replaceChildren();
    if (!keeps) this.at = this.lastWord(what);
    this.again.setAttribute("aria-pressed", String(what[0].role !== undefined));
    this.show();
  }

  // The last token of what was written; after the special one behind a reply nothing was learned.
  lastWord(what) {
    const { tokens } = this.seen;
    const end = tokens.findLastIndex(([, , isSpecial]) => isSpecial);
    const hasEnded = what.at(-1).role === "assistant" && tokens.slice(end + 1).every(([, name]) => !name.trim());
    return hasEnded ? end - 1 : tokens.length - 1;
  }

  ids() {
    return this.seen.tokens.map(([id]) => id);
  }

  names() {
    return this.seen.tokens.map(([, name]) => spaced(name));
  }

  show() {
    const { config } = this.facts;
    this.results.replaceChildren(
      this.tokenRow(),
      el("div.beside", {}, this.nextTokens(), el("div.pictures", {}, this.choices(), ...this.pictures())),
      el("details", {}, el("summary", {}, say("inspect.shapes")), shapes(config, this.seen.tokens.length)),
    );
    this.results.querySelector(".chip[aria-pressed=true]").scrollIntoView({ block: "nearest" });
  }

  // ---- Tokens, and what may follow each

  tokenRow() {
    const button = ([id, name], i) =>
      el(
        "button.chip",
        { type: "button", "aria-pressed": String(i === this.at), onclick: () => this.choose(i) },
        el("span", {}, spaced(name)),
        el("small", {}, String(id)),
      );
    const count = say("tokens", { n: this.seen.tokens.length });
    return el("div.chips", { role: "group", "aria-label": count }, el("small", {}, count), this.seen.tokens.map(button));
  }

  choose(i) {
    this.at = i;
    this.show();
    this.results.querySelectorAll(".chip")[i].focus();
  }

  nextTokens() {
    const { tokens, following } = this.seen;
    const before = this.ids().slice(0, this.at + 1);
    const rows = following[this.at].map(([id, name, logprob]) => {
      const wasNext = tokens[this.at + 1]?.[0] === id;
      const look = { title: say("inspect.append"), onclick: () => this.look([...before, id]) };
      return likely(spaced(name), logprob, look, wasNext ? ".was-next" : "");
    });
    const after = say("inspect.after", { token: spaced(tokens[this.at][1]) });
    return el("section.next", { "aria-label": after }, el("h2", {}, after), ...rows);
  }

  // ---- Pictures

  choices() {
    const { config } = this.facts;
    const select = (...about) => choice(this.results, ...about);
    const again = (name, parse) => (value) => this.look(this.ids(), { keeps: true, [name]: parse(value) });
    const named = (kind, all) => all.map((name) => [name, say(`${kind}.${name}`)]);
    const parts = [
      select("picture", "picture", named("picture", PICTURES), this.picture, (kind) => {
        this.picture = kind;
        this.show();
      }),
    ];
    if (this.isLayered() && config.n_layer > 1) parts.push(select("layer", "layer", counted(config.n_layer), this.layer, again("layer", Number)));
    if (this.facts.untrained) {
      const isUntrained = (kind) => kind === "untrained";
      const chosen = this.untrained ? "untrained" : "trained";
      parts.push(select("weights", "weights", named("weights", ["trained", "untrained"]), chosen, again("untrained", isUntrained)));
    }
    return el("div.row.wrap", {}, parts);
  }

  isLayered() {
    return !["embeddings", "positions"].includes(this.picture);
  }

  pictures() {
    if (this.picture === "qkv") return this.qkv();
    if (this.picture === "norms") return this.norms();
    if (this.picture === "embeddings") return this.inputs();
    if (this.picture === "positions") return this.positions();
    return this.heads();
  }

  // The attention of each head, or the scores that it is made of: "before" the mask, or "after" it.
  heads() {
    const isAttention = this.picture === "attention";
    const { shape, data } = isAttention ? this.seen.arrays.attention : this.seen.arrays.scores;
    const [nHead, n] = shape;
    this.head = Math.min(this.head, nHead - 1); // another model may have had more
    const names = this.names();
    const of = (head) => ({
      values: data.subarray(head * n * n, (head + 1) * n * n),
      rows: names,
      columns: names,
      isMasked: (i, j) => this.picture !== "before" && j > i,
      label: say("picture.of", { picture: say(`picture.${this.picture}`), layer: this.layer + 1, head: head + 1 }),
      ...(isAttention && { curve: Math.sqrt }),
    });
    const small = (head) =>
      el(
        "button.head-picture",
        { type: "button", "aria-pressed": String(head === this.head), onclick: () => this.chooseHead(head) },
        smallMap({ ...of(head), width: 110 }),
        el("small", {}, say("head", { head: head + 1 })),
      );
    const all = [...Array(nHead).keys()].map(small);
    return [
      ...(nHead > 1 ? [el("div.heads", { role: "group", "aria-label": say("heads") }, all)] : []),
      heatMap(of(this.head)),
      el("small", {}, [say("picture.rows"), ...(this.picture === "before" ? [] : [say("picture.hatched")])].join(" ")),
    ];
  }

  chooseHead(head) {
    this.head = head;
    this.show();
    this.results.querySelectorAll(".head-picture")[head].focus();
  }

  // Queries, keys and values of the chosen head, which several query heads may share.
  qkv() {
    const { queries, keys, values } = this.seen.arrays;
    const [nHead, n, size] = queries.shape;
    this.head = Math.min(this.head, nHead - 1); // another model may have had more
    const head = choice(this.results, "head", "heads", counted(nHead), this.head, (value) => {
      this.head = Number(value);
      this.show();
    });
    const table = (key, { shape, data }) => {
      const at = Math.floor((this.head * shape[0]) / nHead) * n * size;
      return this.table(`${say(key)}, ${shape.join(" × ")}`, data.subarray(at, at + n * size), size);
    };
    return [
      head,
      table("shape.queries", queries),
      table("shape.keys", keys),
      table("shape.values", values),
      el("small", {}, say("qkv.turned")),
    ];
  }

  // What the two norms of the layer give to attention and feed-forward.
  norms() {
    const { shape, data } = this.seen.arrays.normed;
    const [, n, width] = shape;
    const table = (i, key) => this.table(say(key), data.subarray(i * n * width, (i + 1) * n * width), width);
    return [table(0, "norm.attention"), table(1, "norm.feed_forward")];
  }

  // The rows of a table are the tokens, its columns the first channels.
  table(name, data, width) {
    const columns = Math.min(width, COLUMNS);
    const names = this.names();
    const cut = Float32Array.from({ length: names.length * columns }, (_, k) => data[Math.floor(k / columns) * width + (k % columns)]);
    const label = name + (columns < width ? ` · ${say("picture.first", { n: columns, all: width })}` : "");
    return heatMap({ values: cut, rows: names, columns: [...Array(columns).keys()].map(String), label, width: 640 });
  }

  // What the first layer reads: the embeddings, and with positions that are added, their sum.
  inputs() {
    const { embeddings, positions } = this.seen.arrays;
    const width = embeddings.shape[1];
    const parts = [this.table(say("picture.embeddings"), embeddings.data, width)];
    if (!ADDED.includes(this.facts.config.position)) return [...parts, el("small", {}, say("positions.turned"))];
    const sum = embeddings.data.map((value, k) => value + positions.data[k]);
    return [...parts, this.table(say("picture.added"), positions.data, width), this.table(say("picture.sum"), sum, width)];
  }

  positions() {
    const { shape, data } = this.seen.arrays.positions;
    if (!shape[1]) return [el("p", {}, say("positions.none"))];
    return [curves(data, shape), this.table(say("picture.positions"), data, shape[1])];
  }
}

const spaced = (name) => visible(name).replaceAll(" ", "·");
