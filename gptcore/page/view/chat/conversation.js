// The open chat: sends, regenerates, continues, branches, edits and deletes, and keeps the result.

import { ROOT, add, newChat, path, remove, turn } from "../kept/tree.js";
import { isChat } from "../kept/transfer.js";
import { el } from "../dom.js";
import { keep, recall, say } from "../words.js";
import { showRead } from "../parts/dialogs.js";
import { Figures } from "../parts/figures.js";
import { Notice } from "../parts/notice.js";
import { Settings } from "../parts/settings.js";
import { Composer } from "./composer.js";
import { Messages } from "./messages.js";

const LAST = "gptcore-last-chat";
const KEEP_MILLISECONDS = 2000; // a reply that is being written is kept this often
const TITLE_SECONDS = 10; // a reply that took longer is told in the window's title

export class Conversation {
  // `host`: {facts, ask}. `changed` is called when the list of chats is to be drawn anew.
  constructor(host, store, changed) {
    Object.assign(this, { host, store, changed });
    const names = ["tokens", "branch", "turn", "regenerate", "continue", "read", "edit", "remove", "refresh"];
    const actions = Object.fromEntries(names.map((name) => [name, this[name].bind(this)]));
    this.messages = new Messages(actions);
    this.composer = new Composer({
      send: (text) => this.send(text),
      stop: () => this.stop(),
      editLast: (event) => this.editLast(event),
    });
    this.settings = new Settings(host.facts, {
      change: (settings, system) => this.setUp(settings, system),
      lastSeed: () => this.nodes().findLast((node) => node.seed !== undefined)?.seed,
    });
    this.notice = new Notice();
    this.figures = new Figures();
    this.empty = this.emptyState();
    const foot = el("div.foot", {}, this.notice.element, this.composer.element, this.figures.element);
    this.element = el("section.stage", {}, this.messages.log, this.empty, foot);
    this.last = recall(LAST); // the chat that was open when the page was closed
    this.known = new Map(); // by id: what is known of replies of this visit beyond their text
    this.start();
  }

  emptyState() {
    const { name, examples = [] } = this.host.facts;
    const example = (text) => el("button.example", { type: "button", onclick: () => this.send(text) }, text);
    return el(
      "div.empty-state",
      {},
      el("h1", {}, say("empty.title", { name })),
      el("p", {}, say("empty.text")),
      el("div.examples", {}, examples.map(example)),
    );
  }

  nodes() {
    return path(this.chat);
  }

  // What Inspect looks at: the messages.
  what() {
    const system = this.chat.system.trim() ? [{ role: "system", content: this.chat.system }] : [];
    return [...system, ...this.nodes().map(({ role, text }) => ({ role, content: text }))];
  }

  get isBusy() {
    return this.writing !== undefined;
  }

  // ---- Which chat is open

  start() {
    const { settings = {}, system = "" } = this.chat ?? {};
    this.stop();
    this.chat = newChat({ settings, system, model: this.host.facts.name });
    this.shown();
  }

  async open(id) {
    if (id === this.chat.id) return;
    const chat = await this.store.load(id);
    if (!chat) return;
    if (!isChat(chat)) return this.notice.tell(say("store.damaged"));
    this.stop();
    this.show(chat);
  }

  show(chat) {
    this.chat = chat;
    this.shown();
  }

  // Opens the chat that was open last, as after a reload.
  async reopen() {
    if (this.last) await this.open(this.last);
  }

  // Takes over what another tab has kept of this chat.
  async reload(id) {
    if (id !== this.chat.id || this.isBusy) return;
    const chat = await this.store.load(id);
    if (chat && isChat(chat) && chat.changed !== this.chat.changed) {
      this.chat = chat;
      this.refresh();
    }
  }

  shown() {
    keep(LAST, this.chat.id);
    for (const node of Object.values(this.chat.nodes))
      if (node.role === "assistant") node.finish ??= "broken"; // the page was closed meanwhile
    this.settings.show(this.chat);
    this.notice.tell("");
    this.refresh();
    this.messages.toEnd();
    this.changed();
  }

  refresh() {
    const nodes = this.nodes();
    this.empty.hidden = nodes.length > 0;
    this.messages.log.hidden = nodes.length === 0;
    this.messages.show(this.chat, nodes);
    const last = nodes.findLast((node) => node.role === "assistant");
    this.figures.measure(last, this.host.facts.block_size);
    this.messages.markCut(last?.n_dropped ? nodes[last.n_dropped] : null);
  }

  async save(tokens) {
    try {
      const kept = await this.store.save(this.chat, tokens);
      if (!this.isBusy && kept.id === this.chat.id) Object.assign(this.chat, kept);
    } catch (error) {
      this.notice.tell(say(error?.name === "QuotaExceededError" ? "store.full" : "store.failed"));
    }
    this.changed();
  }

  setUp(settings, system) {
    Object.assign(this.chat, { settings, system, changed: Date.now() });
    if (this.nodes().length) this.save();
  }

  tint(on) {
    this.messages.isTinted = on;
    this.messages.redraw(this.chat, this.nodes());
  }

  plain(on) {
    this.messages.isPlain = on;
    this.messages.redraw(this.chat, this.nodes());
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

  regenerate(node) {
    if (!this.isBusy) this.reply(node.parent);
  }

  async continue(node) {
    const known = await this.about(node);
    if (!this.isBusy) this.done = this.write(node, known?.tokens?.map(([id]) => id) ?? node.text);
  }

  async branch(node, i, id) {
    const { tokens } = await this.about(node);
    if (this.isBusy) return;
    this.reply(node.parent, [...tokens.slice(0, i).map(([other]) => other), id]);
  }

  turn(node, step) {
    if (this.isBusy) return;
    turn(this.chat, node, step);
    this.refresh();
    this.save();
  }

  edit(node) {
    if (this.isBusy) return;
    this.messages.edit(node, (text) => {
      const { role, parent } = node;
      const made = add(this.chat, parent, { role, text, ...(role === "assistant" && { finish: "end" }) });
      if (role === "user") this.reply(made.id);
      else {
        this.refresh();
        this.save();
      }
    });
  }

  editLast(event) {
    const last = this.nodes().findLast((node) => node.role === "user");
    if (!last) return;
    event.preventDefault();
    this.edit(last);
  }

  remove(node) {
    if (this.isBusy) return;
    const before = Object.keys(this.chat.nodes).length;
    const undo = remove(this.chat, node);
    const again = () => {
      undo(this.chat);
      this.refresh();
      return this.save();
    };
    this.refresh();
    this.save();
    const n = before - Object.keys(this.chat.nodes).length;
    this.notice.tell(say("message.deleted", { n }), { undo: again, isError: false });
  }

  async read(node) {
    const known = await this.about(node);
    if (known?.prompt) showRead(this.element.closest(".gpt"), known);
  }

  // Returns {tokens, prompt, n_dropped} of a reply, if they are known.
  async about(node) {
    return this.known.get(node.id) ?? (await this.store.loadTokens(this.chat.id, node.id));
  }

  async tokens(node) {
    return (await this.about(node))?.tokens;
  }

  // ---- Replies

  // Lets the model answer the message `parent`; the reply may be begun with token ids.
  reply(parent, begun = []) {
    const node = add(this.chat, parent, { role: "assistant", text: "" });
    this.done = this.write(node, begun);
    return this.done;
  }

  async write(node, begun) {
    const { chat } = this;
    const prompt = this.what().slice(0, this.nodes().indexOf(node) - this.nodes().length);
    const known = { tokens: [], prompt: null, n_dropped: 0 };
    const already = node.text; // stays if nothing comes
    this.known.set(node.id, known);
    this.writing = new AbortController();
    const { signal } = this.writing;
    this.notice.tell("");
    this.composer.setBusy(true);
    delete node.finish;
    this.refresh();
    this.messages.grow(node);
    this.messages.toEnd();
    const started = performance.now();
    let keptAt = started;
    const onEvent = (event) => {
      this.notice.follow(event);
      take(event, node, known);
      this.messages.grow(node);
      this.figures.measure(node, this.host.facts.block_size);
      if (performance.now() - keptAt > KEEP_MILLISECONDS) {
        keptAt = performance.now();
        this.store.save(chat).catch(() => {}); // the last one tells of it
      }
    };
    let failure = "";
    try {
      const settings = { ...this.settings.values() };
      await this.host.ask({ prompt, settings, begun }, onEvent, signal);
    } catch (error) {
      failure = error.message;
    }
    node.finish ??= signal.aborted ? "stopped" : "broken";
    this.writing = undefined;
    this.composer.setBusy(false);
    this.ended(chat, node, known, failure && !signal.aborted ? failure : "", already);
    this.announce(performance.now() - started);
  }

  // Keeps a reply that has ended. One that did not begin is taken back, with the message before it.
  async ended(chat, node, known, failure, already) {
    const isNothing = !node.text && failure;
    if (isNothing) {
      const asked = chat.nodes[node.parent];
      remove(chat, node);
      const isNew = asked && !Object.values(chat.nodes).some((other) => other.parent === asked.id);
      if (isNew && this.chat === chat && !this.composer.box.value) {
        remove(chat, asked);
        this.composer.set(asked.text);
      }
    } else if (!known.tokens.length && already) {
      node.text ||= already;
    }
    if (this.chat === chat) {
      this.messages.drawn.delete(node.id);
      this.refresh();
      this.composer.box.focus({ preventScroll: true });
    }
    await this.save(known.tokens.length ? { [node.id]: known } : {});
    if (failure) this.notice.tell(failure);
  }

  announce(milliseconds) {
    if (!document.hidden || milliseconds < 1000 * TITLE_SECONDS) return;
    const { title } = document;
    document.title = `✓ ${title}`;
    const restore = () => (document.title = title);
    document.addEventListener("visibilitychange", restore, { once: true });
  }
}

// Adds an event of a reply to its message, and to what is known of it.
function take(event, node, known) {
  if (event.prompt) {
    Object.assign(known, { prompt: event.prompt, n_dropped: event.n_dropped, tokens: event.tokens });
    Object.assign(node, { text: event.begun, prompt: true, n_dropped: event.n_dropped, seed: event.seed });
  } else if (event.tokens) {
    known.tokens.push(...event.tokens);
    node.text += event.text;
    const { n_prompt, n_new, first_ms, speed } = event;
    Object.assign(node, { n_prompt, n_new, first_ms, speed });
    if (event.finish) node.finish = event.finish;
  }
}
