// The view, which the Gradio page and the static site share: one bar, the list of chats, the
// conversation (of a base model: its text), the settings. It owns the element it is mounted in, and
// talks with a model through `ask` alone:
//
//     mount(element, {facts, ask, inspect, models, translator, train})
//     await ask({prompt, settings, begun, model}, onEvent, signal)
//
// `facts` are those of gptcore/page/facts.py. `prompt` is the messages of a conversation, or a text;
// `begun` the ids or the text that the reply begins with; `model` the name of the one that answers.
// `ask` calls `onEvent` with the events that gptcore/page/reply.py describes, and throws an error
// whose message a person can read. `models`, if it is there, returns the facts as they are now, with
// models that came since. `inspect` is described in inspect/inspect.js, and `translator` and `train`,
// if they are there, in translate/translate.js and train/train.js.

import { ChatList } from "./chat/chatlist.js";
import { Conversation } from "./chat/conversation.js";
import { el, iconButton } from "./dom.js";
import { lost, openStore } from "./kept/store.js";
import { showKeys } from "./parts/dialogs.js";
import { closeAlternatives } from "./parts/glass.js";
import { themeButton } from "./parts/theme.js";
import { Inspect } from "./inspect/inspect.js";
import { Train } from "./train/train.js";
import { Translate } from "./translate/translate.js";
import { Writer } from "./text/writer.js";
import { LANGUAGES, chooseLanguage, language, say } from "./words.js";

const NARROW = matchMedia("(max-width: 900px)");

export async function mount(element, host) {
  const view = new View(host, host.facts.chat ? await openStore() : null);
  await view.stage.reopen?.().catch(() => {}); // the list tells of it
  element.replaceChildren(view.root);
  view.enter(view.named()); // which may look at the chat that was open last
  return view;
}

class View {
  constructor(host, store) {
    Object.assign(this, { host, store });
    this.root = el("div.gpt");
    // Keys that choose among Japanese or Chinese words are the keyboard's own. In Safari the choice
    // has ended when its key is told of, with the code 229 (WebKit bug 165004).
    const hide = (event) => (event.isComposing || event.keyCode === 229) && event.stopPropagation();
    this.root.addEventListener("keydown", hide, { capture: true });
    document.addEventListener("keydown", (event) => this.onKey(event));
    document.addEventListener("pointerdown", ({ target }) => {
      if (!target.closest?.(".alternatives, .token")) closeAlternatives();
    });
    NARROW.addEventListener("change", () => this.fitWidth());
    addEventListener("popstate", () => this.enter(this.named()));
    store?.listen(async (id) => {
      await this.stage.reload(id);
      this.list.refresh();
    });
    if (!store) addEventListener("storage", (event) => this.stage.reload(event));
    this.build();
  }

  build() {
    const { chat, notice, actions } = this.stage ?? {}; // in another language
    document.documentElement.lang = language();
    this.stage = this.store
      ? new Conversation(this.host, this.store, () => this.listChanged())
      : new Writer(this.host);
    if (chat) this.stage.show(chat);
    if (actions) actions.stage = this.stage; // for the Undo that the notice may offer
    if (notice) {
      this.stage.notice.element.replaceWith(notice.element);
      this.stage.notice = notice;
    }
    this.list = this.store && this.chatList();
    this.home = this.store ? "room.chat" : "room.text";
    const { inspect, translator, train } = this.host;
    const old = this.rooms ?? {}; // in another language, whose boxes are taken over
    this.rooms = {
      ...(inspect && { "room.inspect": new Inspect(this.host, old["room.inspect"]) }),
      ...(translator && { "room.translate": new Translate(translator, old["room.translate"]) }),
      ...(train && { "room.train": new Train(train, old["room.train"]) }),
    };
    const { element: stage, settings } = this.stage;
    this.body = el("div.columns", {}, ...(this.list ? [this.list.element] : []), stage, settings.element);
    const curtain = el("div.curtain", { onclick: () => this.closeSheets() });
    const rooms = Object.values(this.rooms).map(({ element }) => element);
    this.root.replaceChildren(this.bar(), this.body, ...rooms, curtain);
    this.fitWidth();
    this.listChanged();
  }

  chatList() {
    return new ChatList(this.store, {
      open: (id) => this.openChat(id),
      fresh: () => this.freshChat(),
      settle: (id) => this.stage.settle(id),
      chat: () => this.stage.chat,
      renamed: (id, title) => id === this.stage.chat.id && Object.assign(this.stage.chat, { title }),
      changed: () => this.listChanged(),
      reload: () => this.stage.reload(this.stage.chat.id),
      tell: (text, options) => this.stage.notice.tell(text, options),
    });
  }

  // ---- The bar

  bar() {
    const { facts } = this.host;
    const names = [this.home, ...Object.keys(this.rooms)];
    const tab = (name) => el("button", { type: "button", onclick: () => this.go(name), "data-room": name }, say(name));
    this.tabs = el("nav.rooms", { "aria-label": say("rooms") }, names.map(tab));
    this.extras = this.looks();
    const isChat = Boolean(this.list);
    const [chats, settings] = [isChat ? [this.side("chats", say("chats"))] : [], this.side("settings", say("settings"))];
    const fresh = isChat ? [iconButton("plus", say("chat.new"), () => this.freshChat(), ".fresh")] : [];
    this.ofHome = [...chats, ...fresh, settings, ...this.extras.querySelectorAll("[aria-pressed]")];
    return el("header.bar", {}, ...chats, ...fresh, (this.name = el("strong.name", {}, facts.name)), this.tabs, el("span.space"), settings);
  }

  side(name, label) {
    const button = iconButton(name, label, () => this.show(name, !this.isShown(name)));
    this[`${name}Button`] = button;
    return button;
  }

  // How texts are shown, the language, the theme, and help.
  looks() {
    const toggle = (name, key, act) => {
      const button = iconButton(name, say(key), () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        act(on);
      });
      button.setAttribute("aria-pressed", "false");
      return button;
    };
    const languages = Object.keys(LANGUAGES);
    const next = languages[(languages.indexOf(language()) + 1) % languages.length];
    const speak = async () => {
      await this.stage.settle();
      const typed = this.stage.composer?.box.value;
      chooseLanguage(next);
      this.build();
      this.enter(this.named());
      if (typed) this.stage.composer.set(typed);
    };
    return el(
      "span.extras",
      {},
      toggle("tint", "tint", (on) => this.stage.tint(on)),
      ...(this.list ? [toggle("plain", "plain.text", (on) => this.stage.plain(on))] : []),
      el(
        "button.symbol.language",
        { type: "button", onclick: speak, title: say("language"), lang: next },
        LANGUAGES[next]["language.name"],
      ),
      themeButton(),
      iconButton("help", say("help"), () => showKeys(this.root, this.list ? "chat" : "text")),
    );
  }

  // The notices of all rooms.
  get notices() {
    return [this.stage, ...Object.values(this.rooms)].map(({ notice }) => notice).filter(Boolean);
  }

  // Says what the model runs on.
  describe(line) {
    this.host.facts.line = line;
    this.stage.settings.describe(line);
  }

  // ---- Sheets at the sides, and other rooms

  // On a narrow page the sheets are a tap away, and what does not fit into the bar is in one of them.
  fitWidth() {
    if (NARROW.matches) this.stage.settings.element.append(this.extras);
    else this.settingsButton.before(this.extras);
    this.show("chats", !NARROW.matches && Boolean(this.list));
    this.show("settings", !NARROW.matches);
  }

  isShown(name) {
    return !this.root.classList.contains(`no-${name}`);
  }

  show(name, on) {
    if (on && NARROW.matches) this.root.classList.add("no-chats", "no-settings");
    this.root.classList.toggle(`no-${name}`, !on);
    for (const side of ["chats", "settings"])
      this[`${side}Button`]?.setAttribute("aria-expanded", String(this.isShown(side)));
  }

  closeSheets() {
    if (!NARROW.matches) return;
    this.show("chats", false);
    this.show("settings", false);
  }

  // The room that the address names, so that a reload stays in it and Back leaves it.
  named() {
    const room = `room.${location.hash.slice(1)}`;
    return room in this.rooms ? room : this.home;
  }

  go(room) {
    const address = new URL(location.href);
    address.hash = room === this.home ? "" : room.replace("room.", "");
    if (room !== this.room) history.pushState(null, "", address);
    this.enter(room);
  }

  enter(room) {
    this.room = room;
    this.body.hidden = room !== this.home;
    for (const [name, { element }] of Object.entries(this.rooms)) element.hidden = name !== room;
    for (const tab of this.tabs.children)
      tab.setAttribute("aria-current", tab.dataset.room === room ? "page" : "false");
    const isHome = room === this.home;
    for (const part of this.ofHome) part.hidden = !isHome;
    this.closeSheets();
    this.rooms[room]?.enter?.(this.stage);
  }

  // ---- Chats

  async openChat(id) {
    await this.stage.open(id);
    this.closeSheets();
  }

  freshChat() {
    if (this.room !== this.home) this.go(this.home);
    this.stage.start();
    this.closeSheets();
    this.stage.composer.box.focus();
  }

  // Another chat is open, or the list or the open chat's model has changed.
  listChanged() {
    if (!this.list) return;
    this.name.textContent = this.stage.name;
    this.list.current = this.stage.chat.id;
    this.list.refresh().catch((error) => this.stage.notice.tell(say(lost(error))));
  }

  // ---- Keys

  onKey(event) {
    const isTyping = event.target.closest?.("input, textarea, select, dialog");
    if (event.key === "Escape") {
      if (closeAlternatives() || event.target.closest?.("dialog, .editing")) return;
      (this.rooms[this.room] ?? this.stage).stop?.();
      this.closeSheets();
    } else if (event.key === "?" && !isTyping) {
      showKeys(this.root, this.list ? "chat" : "text");
    } else if (this.list && (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (this.room !== this.home) this.go(this.home);
      this.show("chats", true);
      this.list.search.focus();
    } else if (this.list && event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "o") {
      event.preventDefault();
      this.freshChat();
    }
  }
}
