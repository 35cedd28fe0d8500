// The open chat: which one it is, who answers in it, and how it is sent, shown and kept.

import { ROOT, add, lastSet, merge, newChat, newest, pairOf, path, randomId, set } from "../kept/tree.js";
import { lost } from "../kept/store.js";
import { isChat } from "../kept/transfer.js";
import { el } from "../dom.js";
import { keep, recall } from "../kept/values.js";
import { say, shownName } from "../words.js";
import { Figures } from "../parts/figures.js";
import { tintLegend } from "../parts/glass.js";
import { Notice } from "../parts/notice.js";
import { modelPicker } from "../parts/picker.js";
import { Settings } from "../parts/settings.js";
import { Actions } from "./actions.js";
import { Composer } from "./composer.js";
import { Messages } from "./messages.js";
import { beingWritten, writeReply } from "./reply.js";

const LAST = "gptcore-last-chat";

const namesModel = () => new URLSearchParams(location.search).has("model");

export class Conversation {
  // `host`: {facts, ask}. `changed` is called when the list of chats is to be drawn anew.
  constructor(host, store, changed) {
    Object.assign(this, { host, store, changed });
    this.actions = new Actions(this);
    this.messages = new Messages(this.actions);
    this.composer = new Composer({
      send: (text) => this.send(text),
      stop: () => this.stop(),
      editLast: (event) => this.actions.editLast(event),
    });
    this.know(host.facts);
    this.settings = this.newSettings(host.facts);
    this.notice = new Notice();
    this.figures = new Figures();
    this.empty = this.newEmpty();
    this.legend = tintLegend();
    const parts = [this.messages.jump, this.notice.element, this.composer.element, this.legend, this.figures.element];
    this.element = el("main.stage", {}, this.messages.log, this.empty, el("div.foot", {}, parts));
    this.last = recall(LAST); // the chat that was open when the page was closed
    this.known = new Map(); // by id: what is known of the latest replies beyond their text
    this.start();
  }

  // ---- Models

  // The facts of the chat's model; of one that is no longer here, the first one's.
  get facts() {
    return this.models.get(this.chat?.model) ?? this.host.facts;
  }

  // Takes over which models there are; returns their names, and those of the other kind.
  know({ models = [this.host.facts], others = [] }) {
    this.models = new Map(models.map((facts) => [facts.name, facts]));
    return (this.offered = { names: [...this.models.keys()], others });
  }

  newSettings(facts, rival = null) {
    const { api, schemas } = this.host.facts;
    const { models } = this.host;
    const choices = {
      choose: (name) => this.choose({ model: name }),
      compare: (name) => this.choose({ rival: name }),
      look: models && (async () => this.know(await models())),
    };
    return new Settings(
      { ...facts, api, schemas },
      {
        change: (settings, system) => this.setUp(settings, system),
        lastSeed: () => this.nodes().findLast((node) => node.seed !== undefined)?.seed,
        models: modelPicker(this.offered, { model: facts.name, rival, isChat: true }, choices),
      },
    );
  }

  newEmpty() {
    const example = (text) => el("button.example", { type: "button", onclick: () => this.send(text) }, text);
    return el(
      "div.empty-state",
      {},
      el("h1", {}, say("empty.title", { name: this.name })),
      el("p", {}, say("empty.text")),
      el("div.examples", {}, this.facts.examples.map(example)),
    );
  }

  // The name of the chat's model for people.
  get name() {
    return shownName(this.facts.name);
  }

  choose(changes) {
    set(this.chat, changes);
    if (this.chat.rival === this.facts.name) this.chat.rival = null;
    this.showSettings();
    this.readdress();
    if (this.nodes().length) this.save();
    this.changed();
    this.settings.element.querySelector(`#${"model" in changes ? "model" : "rival"}`).focus();
  }

  // Takes over what a model runs on, which its first reply tells.
  describe(name, line) {
    const facts = this.models.get(name) ?? this.host.facts;
    facts.line = line;
    if (facts === this.facts) this.settings.describe(line);
  }

  showSettings() {
    if (this.models.size > 1) {
      const old = this.settings.element;
      this.settings = this.newSettings(this.facts, this.chat.rival);
      const extras = old.querySelector(".extras"); // see View.fitWidth
      old.replaceWith(this.settings.element);
      if (extras) this.settings.element.append(extras);
      const empty = this.newEmpty();
      empty.hidden = this.empty.hidden;
      this.empty.replaceWith(empty);
      this.empty = empty;
    }
    this.settings.show(this.chat);
  }

  nodes() {
    return path(this.chat);
  }

  // What Inspect looks at, and a reply answers: the messages, or those before `end` of them.
  what(end) {
    return newest(this.chat.system, this.nodes().slice(0, end));
  }

  get isBusy() {
    return this.writing !== undefined;
  }

  // `writing`: what stops the reply that is being written, or undefined.
  setWriting(writing) {
    this.writing = writing;
    this.composer.setBusy(this.isBusy);
    this.messages.log.classList.toggle("busy", this.isBusy); // what must wait is not offered
  }

  // ---- Which chat is open

  start() {
    const { settings = {}, system = "", model = this.host.facts.name, rival = null } = this.chat ?? {};
    this.stop();
    this.chat = { ...newChat({ settings, system, model }), rival };
    this.shown();
  }

  async open(id) {
    if (id === this.chat.id) return;
    const chat = await this.store.load(id);
    if (!chat) return;
    if (!isChat(chat)) return this.notice.tell(say("store.damaged"));
    this.stop();
    this.show(chat, await beingWritten());
  }

  show(chat, writing) {
    this.chat = chat;
    this.shown(writing);
  }

  // Opens the chat that was open last, as after a reload; but an address that names a model asks for
  // that one, whoever answered last.
  async reopen() {
    const chat = this.last && (await this.store.load(this.last));
    const answers = this.models.get(chat?.model) ?? this.host.facts;
    if (chat && (!namesModel() || answers.name === this.host.facts.name)) await this.open(this.last);
  }

  // An address that names a model names the one that answers here, also for a reload.
  readdress() {
    if (!namesModel()) return;
    const address = new URL(location.href);
    address.searchParams.set("model", this.facts.name);
    history.replaceState(null, "", address);
  }

  // Takes over what another tab has kept of this chat, while a reply is written here all but messages,
  // or leaves a chat that it has deleted; `id` is null when all chats are.
  async reload(id) {
    const open = this.chat.id;
    if (id !== null && id !== open) return;
    const chat = await this.store.load(open);
    if (open !== this.chat.id) return;
    if (!chat && this.nodes().length) return this.leave();
    if (!chat || !isChat(chat) || chat.changed === this.chat.changed) return;
    const setUp = ({ model, rival, system, settings }) => JSON.stringify([model, rival, system, settings]);
    const before = setUp(this.chat);
    const { nodes, chosen } = this.isBusy ? this.chat : chat;
    const changed = Math.max(chat.changed, this.chat.changed);
    // What is set here may be on its way into the store.
    Object.assign(this.chat, chat, lastSet(this.chat, chat), { nodes, chosen, changed });
    for (const gone of chat.gone) delete nodes[gone];
    if (setUp(this.chat) !== before) {
      this.showSettings();
      this.readdress();
    }
    this.refresh();
  }

  // Leaves a chat that is deleted. A reply that is being written is kept once more when it ends.
  async leave() {
    const { id } = this.chat;
    if (this.isBusy) {
      await this.settle();
      await this.store.remove(id);
    }
    if (id === this.chat.id) this.start();
  }

  // `writing`: ids of replies that are being written, here or in other tabs.
  shown(writing = new Set()) {
    for (const node of Object.values(this.chat.nodes))
      if (node.role === "assistant" && !writing.has(node.id)) node.finish ??= "broken"; // the page was closed
    this.showSettings();
    this.notice.tell("");
    this.refresh();
    this.messages.toEnd();
    this.changed();
    this.readdress();
    keep(LAST, this.chat.id);
  }

  refresh() {
    const nodes = this.nodes();
    this.empty.hidden = nodes.length > 0;
    this.messages.log.hidden = nodes.length === 0;
    this.messages.show(this.chat, nodes);
    const last = nodes.findLast((node) => node.role === "assistant");
    this.measure(last);
    this.messages.markCut(last?.n_dropped ? nodes[last.n_dropped] : null);
  }

  // Shows the figures of a reply, in the context of the model that wrote it.
  measure(reply) {
    this.figures.measure(reply, (this.models.get(reply?.model) ?? this.facts).block_size);
  }

  // Keeps the open chat, or another one, and the tokens of new replies; returns whether it is kept.
  save(chat = this.chat, tokens = {}) {
    return this.trying(async () => {
      const kept = await this.store.save(chat, tokens);
      // The chat may have changed while it was kept.
      if (this.isBusy || kept.id !== this.chat.id) return;
      Object.assign(this.chat, merge(kept, this.chat));
      if (chat !== this.chat) this.refresh(); // it was opened again while it was kept
    });
  }

  // Keeps no chat in which nothing was said.
  forget(chat) {
    return this.trying(() => this.store.remove(chat.id));
  }

  async trying(act) {
    let isDone = true;
    try {
      await act();
    } catch (error) {
      isDone = false;
      this.notice.tell(say(lost(error, "store.failed")));
    }
    this.changed();
    return isDone;
  }

  setUp(settings, system) {
    set(this.chat, { settings, system });
    if (this.nodes().length) this.save();
  }

  tint(on) {
    this.messages.isTinted = on;
    this.legend.hidden = !on;
    this.messages.forget();
    this.refresh();
  }

  plain(on) {
    this.messages.isPlain = on;
    this.messages.forget();
    this.refresh();
  }

  // ---- What a person does

  send(text) {
    if (this.isBusy) return;
    const parent = this.nodes().at(-1)?.id ?? ROOT;
    const node = add(this.chat, parent, { role: "user", text });
    this.composer.set("");
    this.reply(node.id);
  }

  stop() {
    this.writing?.abort();
  }

  // Stops what is being written in the open chat, and waits until it is kept. `id`: the chat that
  // is asked about; what is written in the open one goes on if that is another.
  async settle(id = this.chat.id) {
    if (id === this.chat.id) this.stop();
    if (!this.isBusy || this.writing.signal.aborted) await this.done;
  }

  // ---- Replies

  // Lets the model answer the message `parent`. A rival answers the same with the same seed.
  reply(parent) {
    const [{ name: model }, { rival }] = [this.facts, this.chat];
    this.done = this.models.has(rival) ? this.replyBoth(parent, [model, rival]) : this.write(this.newReply(parent, { model }));
    return this.done;
  }

  newReply(parent, known) {
    return add(this.chat, parent, { role: "assistant", text: "", ...known });
  }

  async replyBoth(parent, models) {
    const { seed = -1 } = this.settings.values();
    const drawn = seed < 0 ? Math.floor(Math.random() * 2 ** 31) : seed;
    const pair = randomId();
    const { id } = this.chat;
    for (const model of models) {
      const finish = await this.write(this.newReply(parent, { model, pair }), [], { seed: drawn });
      if (finish === "stopped" || finish === "broken") return;
      if (this.isBusy || this.chat.id !== id) return; // a person went on while the reply was kept
    }
    this.actions.pick(this.nodes().flatMap((node) => pairOf(this.chat, node)).find((node) => node.pair === pair));
  }

  // Writes a reply, or goes on with one that is begun; returns how it ended.
  write(node, begun = [], changes = {}) {
    return writeReply(this, node, begun, changes);
  }
}
