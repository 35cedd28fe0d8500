// The chat view, which the Gradio page and the static site share: one bar, the list of chats, the
// conversation, the settings. It owns the element it is mounted in, and talks with a model through
// `ask` alone:
//
//     mount(element, {facts, ask, rooms})
//     await ask({messages, settings, begun}, onEvent, signal)
//
// `facts`: {name, block_size, settings, examples, line}. `ask` calls `onEvent` with the events that
// gptcore/page/reply.py describes, and throws an error whose message a person can read. `rooms` are
// other views, by the key of their names: functions that show (true) or hide (false) them.

import { ChatList } from "./chat/chatlist.js";
import { closeAlternatives } from "./chat/glass.js";
import { Conversation } from "./chat/conversation.js";
import { showKeys } from "./chat/dialogs.js";
import { el, iconButton } from "./dom.js";
import { openStore } from "./kept/store.js";
import { LANGUAGES, chooseLanguage, keep, language, recall, say } from "./words.js";

const THEME = "gptcore-theme";
const THEMES = ["system", "light", "dark"];
const NARROW = matchMedia("(max-width: 900px)");

export async function mount(element, host) {
  const view = new View(element, host, await openStore());
  await view.conversation.reopen();
  await view.list.refresh();
  return view;
}

class View {
  constructor(element, host, store) {
    Object.assign(this, { host, store });
    this.root = el("div.gpt");
    element.replaceChildren(this.root);
    document.addEventListener("keydown", (event) => this.onKey(event));
    document.addEventListener("pointerdown", ({ target }) => {
      if (!target.closest?.(".alternatives, .token")) closeAlternatives();
    });
    NARROW.addEventListener("change", () => this.fitWidth());
    store.listen(async (id) => {
      await this.conversation.reload(id);
      this.list.refresh();
    });
    this.build();
  }

  build() {
    const chat = this.conversation?.chat;
    document.documentElement.lang = language();
    this.conversation = new Conversation(this.host, this.store, () => this.listChanged());
    if (chat) {
      this.conversation.chat = chat;
      this.conversation.shown();
    }
    this.list = new ChatList(this.store, {
      open: (id) => this.openChat(id),
      fresh: () => this.freshChat(),
      changed: () => this.listChanged(),
      tell: (text, options) => this.conversation.composer.tell(text, options),
    });
    this.room = "room.chat";
    const { element: stage, settings } = this.conversation;
    this.body = el("div.columns", {}, this.list.element, stage, settings.element);
    const curtain = el("div.curtain", { onclick: () => this.closeSheets() });
    this.root.replaceChildren(this.bar(), this.body, curtain);
    this.fitWidth();
    this.setTheme(recall(THEME) ?? "system");
    this.listChanged();
  }

  bar() {
    const side = (name, label) => {
      const button = iconButton(name, label, () => this.show(name, !this.isShown(name)));
      this[`${name}Button`] = button;
      return button;
    };
    const { facts, rooms = {} } = this.host;
    const names = ["room.chat", ...Object.keys(rooms)];
    const tabs = names.map((name) => el("button", { type: "button", onclick: () => this.enter(name), "data-room": name }, say(name)));
    this.tabs = el("nav.rooms", { "aria-label": say("rooms"), hidden: names.length === 1 }, tabs);
    const isPressed = (name, key, act) => {
      const button = iconButton(name, say(key), () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        act(on);
      });
      button.setAttribute("aria-pressed", "false");
      return button;
    };
    const redraw = (name) => (on) => {
      const { messages, chat } = this.conversation;
      messages[name] = on;
      messages.redraw(chat, this.conversation.nodes());
    };
    const languages = Object.keys(LANGUAGES);
    const next = languages[(languages.indexOf(language()) + 1) % languages.length];
    const nextName = LANGUAGES[next]["language.name"];
    const speak = () => {
      chooseLanguage(next);
      this.build();
    };
    this.themeButton = el("span");
    this.extras = el(
      "span.extras",
      {},
      isPressed("glass", "tint", redraw("isTinted")),
      isPressed("read", "plain.text", redraw("isPlain")),
      el("button.symbol.language", { type: "button", onclick: speak, title: say("language"), lang: next }, nextName),
      this.themeButton,
      iconButton("help", say("help"), () => showKeys(this.root)),
    );
    return el(
      "header.bar",
      {},
      side("chats", say("chats")),
      iconButton("plus", say("chat.new"), () => this.freshChat()),
      el("strong.name", { title: facts.line ?? "" }, facts.name),
      this.tabs,
      el("span.space"),
      side("settings", say("settings")),
    );
  }

  // ---- Sheets at the sides, and other rooms

  // On a narrow page the sheets are a tap away, and what does not fit into the bar is in one of them.
  fitWidth() {
    if (NARROW.matches) this.conversation.settings.element.prepend(this.extras);
    else this.settingsButton.before(this.extras);
    this.show("chats", !NARROW.matches);
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

  enter(room) {
    this.room = room;
    this.body.hidden = room !== "room.chat";
    for (const [name, show] of Object.entries(this.host.rooms ?? {})) show(name === room, this.conversation);
    this.root.classList.toggle("elsewhere", room !== "room.chat");
    this.markRoom();
  }

  markRoom() {
    for (const tab of this.tabs.children)
      tab.setAttribute("aria-current", tab.dataset.room === this.room ? "page" : "false");
  }

  // ---- Chats

  async openChat(id) {
    await this.conversation.open(id);
    this.closeSheets();
  }

  freshChat() {
    if (this.room !== "room.chat") this.enter("room.chat");
    this.conversation.start();
    this.closeSheets();
    this.conversation.composer.box.focus();
  }

  listChanged() {
    if (!this.list) return;
    this.markRoom();
    this.list.current = this.conversation.chat.id;
    this.list.refresh().catch(() => this.conversation.composer.tell(say("store.failed")));
  }

  // ---- Looks and keys

  setTheme(theme) {
    keep(THEME, theme);
    const prefersDark = matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
      const isDark = theme === "dark" || (theme === "system" && prefersDark.matches);
      document.documentElement.dataset.theme = isDark ? "dark" : "light";
      document.body.classList.toggle("dark", isDark); // Gradio's own
    };
    prefersDark.onchange = apply;
    apply();
    const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    const label = `${say("theme")}: ${say(`theme.${theme}`)}`;
    const button = iconButton(theme, label, () => this.setTheme(next));
    this.themeButton.replaceWith(button);
    this.themeButton = button;
  }

  onKey(event) {
    const isTyping = event.target.closest?.("input, textarea, select, dialog");
    const { conversation } = this;
    if (event.key === "Escape") {
      closeAlternatives();
      if (!event.target.closest?.("dialog, .editing")) conversation.stop();
    } else if (event.ctrlKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      this.show("chats", true);
      this.list.search.focus();
    } else if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "o") {
      event.preventDefault();
      this.freshChat();
    } else if (event.key === "?" && !isTyping) {
      showKeys(this.root);
    }
  }
}
