// The list of kept chats: new, search, rename, delete with Undo, and chats as files.

import { el, iconButton } from "../dom.js";
import { asJson, asMarkdown, download, importJson } from "../kept/transfer.js";
import { path, touch } from "../kept/tree.js";
import { say } from "../words.js";

export class ChatList {
  // `actions`: open(id), fresh(), settle(), renamed(id, title), changed(), reload(), tell(text, options).
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
      act("export.all", this.trying(() => this.exportAll())),
      act("import", () => this.file.click()),
      act("delete.all", () => this.confirmClear()),
      this.file,
    );
    const note = store.isKept ? say("kept.here") : say("kept.visit");
    this.foot = el("div.list-foot", {}, foot, el("small", {}, note));
    this.element = el("aside.chats", { "aria-label": say("chats") }, fresh, this.search, this.items, this.foot);
  }

  // Draws the list anew, unless somebody is naming a chat in it.
  async refresh() {
    const latest = (this.latest = Symbol("a refresh"));
    const wanted = this.search.value.trim().toLowerCase();
    let heads = await this.store.list();
    if (wanted) heads = await this.matching(heads, wanted);
    if (latest !== this.latest || this.items.querySelector("input")) return;
    const focused = this.focused();
    this.items.replaceChildren(...heads.map((head) => this.item(head)));
    if (wanted && !heads.length) this.items.append(el("li.none", {}, say("search.none")));
    if (focused) this.items.querySelector(`[data-id="${focused.id}"]`)?.children[focused.n]?.focus();
  }

  // Returns which button of which chat has the focus, if one has.
  focused() {
    const item = this.items.contains(document.activeElement) && document.activeElement.closest("li");
    return item && { id: item.dataset.id, n: [...item.children].indexOf(document.activeElement) };
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
    return () => act().catch(() => this.actions.tell(say("store.lost")));
  }

  rename(item, id, title) {
    const box = el("input", { type: "text", "aria-label": say("rename"), maxlength: "100" });
    box.value = title;
    const close = () => {
      box.onblur = null; // which a box that goes away has, too
      box.remove();
    };
    const save = this.trying(async () => {
      close();
      const chat = await this.store.load(id);
      const name = box.value.trim();
      this.actions.renamed(id, name);
      await this.store.save(touch({ ...chat, title: name }));
      this.actions.changed();
    });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter") save();
      if (event.key === "Escape") {
        close();
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
    download(name, ".md", asMarkdown(chat, say), "text/markdown");
    await this.download(name, [id]);
  }

  async exportAll() {
    await this.download("chats", (await this.store.list()).map(({ id }) => id));
  }

  async download(name, ids) {
    let n = 0;
    for await (const text of asJson(this.store, ids)) {
      n += 1;
      download(name, `${n > 1 ? ` ${n}` : ""}.json`, text, "application/json");
    }
  }

  async read() {
    const [file] = this.file.files;
    this.file.value = "";
    if (!file) return;
    try {
      await this.actions.settle(); // what is written now would be kept over what comes back
      const n = await importJson(this.store, file);
      await this.actions.reload();
      this.actions.tell(say("import.done", { n }), { isError: false });
    } catch (error) {
      this.actions.tell(say(error.message.startsWith("import.") ? error.message : "store.lost"));
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
