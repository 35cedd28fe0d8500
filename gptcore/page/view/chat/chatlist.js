// The list of kept chats: new, search, rename, delete with Undo, and chats as files.

import { el, iconButton } from "../dom.js";
import { asJson, asMarkdown, download, importJson } from "../kept/transfer.js";
import { path } from "../kept/tree.js";
import { say } from "../words.js";

export class ChatList {
  // `actions`: open(id), fresh(), settle(), renamed(id, title), changed(), tell(text, options).
  constructor(store, actions) {
    Object.assign(this, { store, actions, current: null });
    this.search = el("input", { type: "search", placeholder: say("search"), "aria-label": say("search") });
    this.search.addEventListener("input", () => this.refresh());
    this.items = el("ul");
    const fresh = el("button.primary.wide-button", { type: "button", onclick: actions.fresh }, `+ ${say("chat.new")}`);
    this.file = el("input", { type: "file", accept: ".json,application/json", hidden: true, "aria-label": say("import") });
    this.file.addEventListener("change", () => this.read());
    const act = (key, onclick) => el("button.small", { type: "button", onclick }, say(key));
    const foot = el(
      "div.row.wrap",
      {},
      act("export.all", () => this.exportAll()),
      act("import", () => this.file.click()),
      act("delete.all", () => this.confirmClear()),
      this.file,
    );
    const note = store.isKept ? say("kept.here") : say("kept.visit");
    this.foot = el("div.list-foot", {}, foot, el("small", {}, note));
    this.element = el("aside.chats", { "aria-label": say("chats") }, fresh, this.search, this.items, this.foot);
  }

  async refresh() {
    const wanted = this.search.value.trim().toLowerCase();
    let heads = await this.store.list();
    if (wanted) heads = await this.matching(heads, wanted);
    this.items.replaceChildren(...heads.map((head) => this.item(head)));
    if (wanted && !heads.length) this.items.append(el("li.none", {}, say("search.none")));
  }

  async matching(heads, wanted) {
    const found = [];
    for (const head of heads) {
      const isTitle = head.title.toLowerCase().includes(wanted);
      const chat = isTitle ? null : await this.store.load(head.id);
      const texts = Object.values(chat?.nodes ?? {}).map((node) => node.text.toLowerCase());
      if (isTitle || texts.some((text) => text.includes(wanted))) found.push(head);
    }
    return found;
  }

  item({ id, title }) {
    const name = title || say("chat.untitled");
    const open = el("button.title", { type: "button", title: name, onclick: () => this.actions.open(id) }, name);
    if (id === this.current) open.setAttribute("aria-current", "true");
    const item = el(
      "li",
      {},
      open,
      iconButton("dots", say("actions.of", { name }), () => item.classList.toggle("open"), ".dots"),
      iconButton("edit", say("rename.of", { name }), () => this.rename(item, id, title)),
      iconButton("copy", say("export.of", { name }), () => this.exportOne(id, name)),
      iconButton("remove", say("delete.of", { name }), () => this.remove(id)),
    );
    return item;
  }

  rename(item, id, title) {
    const box = el("input", { type: "text", "aria-label": say("rename"), maxlength: "100" });
    box.value = title;
    const save = async () => {
      box.onblur = null;
      const chat = await this.store.load(id);
      const name = box.value.trim();
      this.actions.renamed(id, name);
      await this.store.save({ ...chat, title: name, changed: Date.now() });
      this.actions.changed();
    };
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter") save();
      if (event.key === "Escape") {
        box.onblur = null; // which a box that goes away has, too
        this.refresh();
      }
      event.stopPropagation();
    });
    item.replaceChildren(box);
    box.focus();
    box.onblur = save;
  }

  async remove(id) {
    if (id === this.current) await this.actions.settle(); // or its reply would bring it back
    const undo = await this.store.remove(id);
    if (id === this.current) this.actions.fresh();
    this.actions.changed();
    const bring = async () => {
      await undo();
      this.actions.open(id);
    };
    this.actions.tell(say("chat.deleted"), { undo: bring, isError: false });
  }

  async exportOne(id, name) {
    const chat = await this.store.load(id);
    if (!path(chat).length) return;
    download(`${name}.md`, asMarkdown(chat, say), "text/markdown");
    download(`${name}.json`, await asJson(this.store, [id]), "application/json");
  }

  async exportAll() {
    const heads = await this.store.list();
    download("chats.json", await asJson(this.store, heads.map((head) => head.id)), "application/json");
  }

  async read() {
    const [file] = this.file.files;
    this.file.value = "";
    if (!file) return;
    try {
      const n = await importJson(this.store, file);
      this.actions.tell(say("import.done", { n }), { isError: false });
    } catch (error) {
      this.actions.tell(say(error.message.startsWith("import.") ? error.message : "store.failed"));
    }
    this.actions.changed();
  }

  confirmClear() {
    const clear = async () => {
      await this.actions.settle();
      await this.store.clear();
      this.actions.fresh();
      this.actions.changed();
    };
    const buttons = [
      el("button.small.danger", { type: "button", onclick: clear }, say("delete.all.sure")),
      el("button.small", { type: "button", onclick: () => this.restoreFoot() }, say("cancel")),
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
