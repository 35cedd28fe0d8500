// The list of kept chats: new, search, rename, delete with Undo, and chats as files.

import { el, iconButton } from "../dom.js";
import { lost } from "../kept/store.js";
import { asJson, asMarkdown, download, importJson } from "../kept/transfer.js";
import { path, set } from "../kept/tree.js";
import { button, fileInput, nameBox } from "../parts/inputs.js";
import { say } from "../words.js";

export class ChatList {
  // `actions`: open(id), fresh(), settle(), renamed(id, title), changed(), reload(), tell(text, options).
  constructor(store, actions) {
    Object.assign(this, { store, actions, current: null });
    this.search = el("input", { type: "search", placeholder: say("search"), "aria-label": say("search") });
    this.search.addEventListener("input", this.trying(() => this.refresh()));
    this.items = el("ul");
    const fresh = el("button.primary.wide-button", { type: "button", onclick: actions.fresh }, `+ ${say("chat.new")}`);
    const own = { accept: ".json,application/json", hidden: true, "aria-label": say("import") };
    const file = fileInput(own, ([chosen]) => this.read(chosen));
    const foot = el(
      "div.row.wrap",
      {},
      button("export.all", this.trying(() => this.exportAll()), ".small"),
      button("import", () => file.click(), ".small"),
      button("delete.all", () => this.confirmClear(), ".small"),
      file,
    );
    const note = store.isKept ? say("kept.here") : say("kept.visit");
    this.foot = el("div.list-foot", {}, foot, el("small", {}, note));
    this.element = el("aside.chats", { "aria-label": say("chats") }, fresh, this.search, this.items, this.foot);
  }

  // Draws the list anew; whatever asks for it meanwhile is served by one more drawing.
  refresh() {
    this.isAsked = true;
    return (this.drawing ??= this.drawAll());
  }

  async drawAll() {
    try {
      while (this.isAsked) {
        this.isAsked = false;
        await this.draw();
      }
    } finally {
      this.drawing = null;
    }
  }

  get wanted() {
    return this.search.value.trim().toLowerCase();
  }

  // Draws the list, unless nothing in it has changed or somebody is naming a chat in it.
  async draw() {
    const { wanted } = this;
    const all = await this.store.list();
    const heads = wanted ? await this.matching(all, wanted) : all;
    const key = JSON.stringify([this.current, wanted, heads.map(({ id, title }) => [id, title])]);
    if (wanted !== this.wanted || key === this.drawn || this.items.querySelector("input")) return;
    this.drawn = key;
    const focused = this.focused();
    this.items.replaceChildren(...heads.map((head) => this.item(head)));
    if (wanted && !heads.length) this.items.append(el("li.none", {}, say("search.none")));
    if (focused) this.focus(focused);
  }

  // Returns which button of which chat has the focus, if one has.
  focused() {
    const item = this.items.contains(document.activeElement) && document.activeElement.closest("li");
    const place = (element) => [...element.parentElement.children].indexOf(element);
    return item && { id: item.dataset.id, at: place(item), n: place(document.activeElement) };
  }

  // Focuses that button again; of a chat that went away, the one in its place.
  focus({ id, at, n }) {
    const same = this.items.querySelector(`[data-id="${id}"]`)?.children[n];
    (same ?? this.items.children[at]?.firstChild ?? this.items.lastChild?.firstChild ?? this.search).focus();
  }

  async matching(heads, wanted) {
    const found = [];
    for (const head of heads) {
      if (wanted !== this.wanted) break; // a person types on
      const isTitle = head.title.toLowerCase().includes(wanted);
      const chat = isTitle ? null : await this.store.load(head.id);
      const texts = Object.values(chat?.nodes ?? {}).map((node) => node.text.toLowerCase());
      if (isTitle || texts.some((text) => text.includes(wanted))) found.push(head);
    }
    return found;
  }

  item({ id, title }) {
    const name = title || say("chat.untitled");
    const open = el("button.title", { type: "button", title: name, onclick: this.trying(() => this.actions.open(id)) }, name);
    if (id === this.current) open.setAttribute("aria-current", "true");
    const item = el(
      "li",
      { "data-id": id },
      open,
      iconButton("dots", say("actions.of", { name }), () => item.classList.toggle("open"), ".dots"),
      iconButton("edit", say("rename.of", { name }), () => this.rename(item, id, title)),
      iconButton("copy", say("export.of", { name }), this.trying(() => this.exportOne(id, name))),
      iconButton("remove", say("delete.of", { name }), this.trying(() => this.remove(id))),
    );
    return item;
  }

  // Returns an act that says so if the browser keeps or gives nothing.
  trying(act) {
    return () => act().catch((error) => this.actions.tell(say(lost(error))));
  }

  rename(item, id, title) {
    const buttons = [...item.children];
    const close = () => {
      box.onblur = null; // which a box that goes away has, too
      item.replaceChildren(...buttons);
    };
    const save = this.trying(async () => {
      close();
      const chat = await this.store.load(id);
      const name = box.value.trim();
      this.actions.renamed(id, name);
      await this.store.save(set({ ...chat }, { title: name }));
      this.actions.changed();
    });
    const byKey = (act) => () => {
      act();
      buttons[0].focus();
      this.actions.changed(); // which was not drawn meanwhile
    };
    const box = nameBox({ "aria-label": say("rename"), maxlength: "100" }, { take: byKey(save), leave: byKey(close) });
    box.value = title;
    item.replaceChildren(box);
    box.focus();
    box.onblur = save;
  }

  async remove(id) {
    await this.actions.settle(id); // or its reply would bring it back
    const undo = await this.store.remove(id);
    if (id === this.current) this.actions.fresh();
    this.actions.changed();
    const bring = this.trying(async () => {
      await undo();
      await this.actions.open(id);
    });
    this.actions.tell(say("chat.deleted"), { undo: bring, isError: false });
  }

  // What is exported: the open chat as it is on the page, which a full disk may not have kept.
  get exported() {
    const open = this.actions.chat();
    const isOpen = (id) => id === open.id && path(open).length > 0;
    const { store } = this;
    return {
      load: async (id) => (isOpen(id) ? open : store.load(id)),
      loadTokens: (id, node) => store.loadTokens(id, node),
      ids: async () => {
        const ids = (await store.list()).map(({ id }) => id);
        return isOpen(open.id) && !ids.includes(open.id) ? [open.id, ...ids] : ids;
      },
    };
  }

  async exportOne(id, name) {
    const chat = await this.exported.load(id);
    if (!path(chat).length) return;
    download(name, ".md", asMarkdown(chat, say), "text/markdown");
    await this.download(name, [id]);
  }

  async exportAll() {
    await this.download("chats", await this.exported.ids());
  }

  async download(name, ids) {
    const left = [];
    let n = 0;
    for await (const text of asJson(this.exported, ids, left)) {
      n += 1;
      download(name, `${n > 1 ? ` ${n}` : ""}.json`, text, "application/json");
    }
    if (left.length) this.actions.tell(say("export.left", { n: left.length }));
  }

  async read(file) {
    try {
      await this.actions.settle(); // what is written now would be kept over what comes back
      const n = await importJson(this.store, file);
      await this.actions.reload();
      this.actions.tell(say("import.done", { n }), { isError: false });
    } catch (error) {
      this.actions.tell(say(error.message?.startsWith("import.") ? error.message : lost(error)));
    }
    this.actions.changed();
  }

  confirmClear() {
    const clear = this.trying(async () => {
      await this.actions.settle();
      await this.store.clear();
      this.actions.fresh();
      this.actions.changed();
    });
    const buttons = [
      button("delete.all.sure", clear, ".small.danger"),
      button("cancel", () => this.restoreFoot(), ".small"),
    ];
    this.hiddenFoot ??= this.foot.firstChild;
    this.foot.firstChild.replaceWith(el("div.row.wrap", { role: "group" }, buttons));
    buttons[1].focus();
    buttons[0].addEventListener("click", () => this.restoreFoot());
  }

  restoreFoot() {
    this.foot.firstChild.replaceWith(this.hiddenFoot);
  }
}
