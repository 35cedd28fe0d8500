// Translate: each line of a text, and what each word of a translation was taken from.

import { el } from "../dom.js";
import { choice, counted } from "../parts/choice.js";
import { visible } from "../parts/glass.js";
import { heatMap } from "../parts/heatmap.js";
import { button, field, sendOnShiftEnter } from "../parts/inputs.js";
import { Notice } from "../parts/notice.js";
import { say, told } from "../words.js";

const MEAN = "mean"; // of the heads
const KINDS = ["cross", "encoder", "decoder"]; // of attention

export class Translate {
  // `host`: {facts, translate, crossing}; see gptcore/page/translate.py. `old`: the room before, if any.
  constructor(host, old) {
    old?.stop();
    Object.assign(this, { host, found: [], sentence: 0, kind: "cross", layer: null, head: MEAN });
    const { facts } = host;
    this.notice = new Notice();
    this.source = el("textarea", { rows: "6", placeholder: say("translate.type") });
    this.source.value = old?.source.value ?? "";
    sendOnShiftEnter(this.source, () => this.translate());
    this.target = el("textarea", { rows: "6", readOnly: true });
    const { default: value, highest } = facts.beams;
    this.beams = el("input", { type: "number", id: "beams", min: "1", max: String(highest), value: old?.beams.value ?? String(value) });
    this.go = button("translate", () => this.translate(), ".primary");
    this.halt = button("stop", () => this.stop(), ".primary");
    this.halt.hidden = true;
    this.status = el("p.cell", { role: "status" });
    this.picture = el("div.pictures", { hidden: true });
    const example = (text) => el("button.small", { type: "button", onclick: () => (this.source.value = text) }, text);
    this.element = el(
      "main.room",
      { "aria-label": say("room.translate") },
      el("h1", {}, facts.name),
      el("p", {}, say("translate.lead")),
      el("div.pair", {}, field("source", "translate.source", this.source), field("target", "translate.target", this.target)),
      el("div.row.wrap", {}, facts.examples.map(example)),
      el("div.row.wrap", {}, this.go, this.halt, el("label", { for: "beams" }, say("beams")), this.beams, el("small", {}, say("help.beams"))),
      this.notice.element,
      this.status,
      this.picture,
      el("small.device", {}, told(facts.line)),
    );
  }

  stop() {
    this.running?.abort();
  }

  async translate() {
    if (this.running) return;
    this.running = new AbortController();
    this.asked = null; // a picture that comes late is of the text before
    this.found = [];
    this.target.value = "";
    this.picture.hidden = true;
    this.notice.tell("");
    this.status.textContent = say("translate.working");
    [this.go.hidden, this.halt.hidden] = [true, false];
    let failure = "";
    try {
      const request = { text: this.source.value, beams: Number(this.beams.value) };
      await this.host.translate(request, (event) => this.take(event), this.running.signal);
    } catch (error) {
      failure = this.running.signal.aborted ? "" : error.message;
    }
    const isStopped = this.running.signal.aborted;
    this.running = undefined;
    [this.go.hidden, this.halt.hidden] = [false, true];
    this.status.textContent = failure ? "" : this.summary(isStopped);
    if (failure) this.notice.tell(failure);
    else await this.show(0);
  }

  take(event) {
    this.notice.follow(event);
    if (event.text === undefined) return;
    this.found.push(event);
    this.target.value = this.found.map(({ text }) => text).join("\n");
    this.status.textContent = say("translate.done", { n: this.found.length });
  }

  drawn() {
    const { most_drawn: most } = this.host.facts;
    return this.found.filter(({ source, target }) => target.length > 1 && Math.max(source.length, target.length) <= most);
  }

  summary(isStopped) {
    const real = this.found.filter(({ target }) => target.length);
    const cut = real.filter(({ finished }) => !finished).length;
    const parts = [say("translate.done", { n: real.length })];
    if (cut) parts.push(say("translate.cut", { n: cut }));
    if (isStopped) parts.push(say("finish.stopped"));
    return parts.join(" · ");
  }

  // ---- The cross-attention of one sentence

  async show(sentence) {
    const sentences = this.drawn();
    this.picture.hidden = !sentences.length;
    if (!sentences.length) return;
    this.sentence = Math.min(sentence, sentences.length - 1);
    const asked = (this.asked = sentences[this.sentence]);
    try {
      const seen = await this.host.crossing(asked);
      if (asked !== this.asked) return;
      this.seen = seen;
      this.draw();
    } catch (error) {
      if (asked === this.asked) this.notice.tell(error.message);
    }
  }

  draw() {
    const [nLayer, nHead] = this.seen.arrays[this.kind].shape;
    this.layer = Math.min(this.layer ?? nLayer - 1, nLayer - 1);
    const select = (...about) => choice(this.picture, ...about);
    const lines = this.drawn().map(({ text }, i) => [i, `${i + 1}. ${text}`]);
    const redraw = (name) => (value) => {
      this[name] = name === "kind" || value === MEAN ? value : Number(value);
      this.draw();
    };
    this.picture.replaceChildren(
      el(
        "div.row.wrap",
        {},
        select("sentence", "translate.sentence", lines, this.sentence, (i) => this.show(Number(i))),
        select("kind", "translate.kind", KINDS.map((kind) => [kind, say(`attention.${kind}`)]), this.kind, redraw("kind")),
        ...(nLayer > 1 ? [select("cross-layer", "layer", counted(nLayer), this.layer, redraw("layer"))] : []),
        select("cross-head", "heads", [[MEAN, say("heads.mean")], ...counted(nHead)], this.head, redraw("head")),
      ),
      this.map(),
      el("small", {}, this.kind === "cross" ? say("translate.rows") : [say("picture.rows"), say("picture.hatched")].join(" ")),
    );
  }

  map() {
    const { source, target, arrays } = this.seen;
    const { shape, data } = arrays[this.kind];
    const [, nHead, n, width] = shape;
    const size = n * width;
    const of = (head) => data.subarray((this.layer * nHead + head) * size, (this.layer * nHead + head + 1) * size);
    const heads = this.head === MEAN ? [...Array(nHead).keys()].map(of) : [of(this.head)];
    const values = heads[0].map((_, k) => heads.reduce((sum, head) => sum + head[k], 0) / heads.length);
    const read = ["·", ...target.slice(0, -1)]; // the decoder reads what it has written
    const [from, to] = { cross: [target, source], encoder: [source, source], decoder: [read, read] }[this.kind];
    const [rows, columns] = [from, to].map((names) => names.map(visible));
    const isMasked = (i, j) => this.kind === "decoder" && j > i;
    return heatMap({ values, rows, columns, isMasked, label: say(`attention.${this.kind}`) });
  }
}
