// The conversation: its messages, their versions, and what can be done with each.

import { el, iconButton } from "../dom.js";
import { pairOf, versionOf } from "../kept/tree.js";
import { say, shownName } from "../words.js";
import { closeAlternatives, showTokens, textOf } from "../parts/glass.js";
import { button, sendOnEnter } from "../parts/inputs.js";
import { copyText, showMarkdown } from "./markdown.js";

export class Messages {
  // `actions`: what the buttons call, by name; see actions.js.
  constructor(actions) {
    this.actions = actions;
    this.drawn = new Map(); // by id: the element of a message
    this.log = el("div.log", { role: "log", "aria-label": say("conversation"), tabindex: "0" });
    this.jump = iconButton("down", say("to.end"), () => this.toEnd(), ".jump");
    this.isFollowing = true; // until a person scrolls up
    this.log.addEventListener("scroll", () => {
      this.follow(this.isAtEnd());
      closeAlternatives();
    });
    this.growing = new ResizeObserver(() => this.isFollowing && this.toEnd());
    this.growing.observe(this.log);
    this.isPlain = false; // Markdown is shown as it is written
    this.isTinted = false;
  }

  // Draws the messages that are shown; those that have not changed keep their elements, though
  // another tab has kept a copy of them that replaces them in the chat.
  show(chat, nodes) {
    closeAlternatives();
    const drawn = new Map();
    this.isMixed = new Set(Object.values(chat.nodes).map(({ model }) => model).filter(Boolean)).size > 1;
    const draw = (node) => {
      const { number, count } = versionOf(chat, node);
      const stamp = `${number}/${count}/${node.text.length}/${node.finish}/${this.isMixed}`;
      const old = this.drawn.get(node.id);
      const isEdited = old?.classList.contains("editing"); // what a person types in it stays
      const element = isEdited || old?.stamp === stamp ? old : this.make(node, number, count);
      Object.assign(element, { node, stamp });
      drawn.set(node.id, element);
      return element;
    };
    const elements = nodes.map((node) => {
      const pair = pairOf(chat, node);
      return pair.length < 2 ? draw(node) : this.versus(node, pair.map(draw));
    });
    this.drawn = drawn;
    this.place(elements);
    this.growing.disconnect(); // the last message grows, by words or by its buttons
    for (const element of [this.log, ...elements.slice(-1)]) this.growing.observe(element);
  }

  // Puts these elements into the log, and moves none that is in its place: a focus stays where it is.
  // If its button is drawn anew, the same button of the message in the same place has it.
  place(elements) {
    const { activeElement: at } = document;
    const index = [...this.log.children].findIndex((element) => element.contains(at));
    for (const old of [...this.log.children]) if (!elements.includes(old)) old.remove();
    elements.forEach((element, i) => {
      const other = this.log.children[i] ?? null;
      if (element !== other) this.log.insertBefore(element, other);
    });
    if (index < 0 || this.log.contains(at)) return;
    const nameOf = (button) => button.dataset.name ?? button.ariaLabel ?? button.textContent;
    const next = [...(elements[index]?.querySelectorAll("button") ?? [])].find((one) => nameOf(one) === nameOf(at));
    (next ?? elements[index] ?? this.log).focus({ preventScroll: true });
  }

  // Replies of two models to the same message, side by side; the chosen one is gone on from.
  versus(chosen, articles) {
    const frames = articles.map((article) => {
      const { node } = article;
      const isChosen = node === chosen;
      const choose = { type: "button", onclick: () => this.actions.pick(node), "aria-pressed": String(isChosen), "data-name": node.id };
      const head = el("div.head", {}, el("strong", {}, shownName(node.model)), el("button.small", choose, say(isChosen ? "model.chosen" : "model.choose")));
      return el("div.side", {}, head, article);
    });
    return el("div.versus", { role: "group", "aria-label": say("model.versus") }, frames);
  }

  // Lets all messages be drawn anew.
  forget() {
    for (const [id, article] of this.drawn) if (!article.classList.contains("editing")) this.drawn.delete(id);
  }

  make(node, number, count) {
    const body = el("div.body");
    const who = say(`role.${node.role}`);
    const article = el(`article.message.${node.role}`, { "aria-label": who, tabindex: "-1" }, body);
    Object.assign(article, { node, body });
    this.fill(article);
    // Side by side, the name stands above.
    if (this.isMixed && node.model && !node.pair) article.append(el("small.by", {}, shownName(node.model)));
    article.append(this.tools(article, number, count));
    return article;
  }

  async fill(article) {
    const { node, body } = article;
    body.classList.toggle("plain", node.role === "user" || this.isPlain || this.isTinted);
    const tokens = this.isTinted && node.role === "assistant" && (await this.actions.tokens(node));
    if (tokens && node.text && textOf(tokens).startsWith(node.text))
      showTokens(body, tokens, (...chosen) => this.actions.branch(article.node, ...chosen));
    else if (body.classList.contains("plain")) body.textContent = node.text;
    else showMarkdown(body, node.text);
    const isEmpty = !node.text && node.finish !== undefined;
    if (isEmpty) body.textContent = say("no.text");
    article.classList.toggle("empty", isEmpty);
    article.classList.toggle("coming", !node.text && !isEmpty && node.role === "assistant");
  }

  // Shows the text of a reply that is being written.
  grow(node) {
    const article = this.drawn.get(node.id);
    if (!article) return;
    article.classList.add("writing");
    article.setAttribute("aria-busy", "true"); // read aloud once, when it has ended
    this.fill(article);
  }

  // The buttons below a message; they act on what it is when they are pressed.
  tools(article, number, count) {
    const { node } = article;
    const act = (name, ...more) => () => this.actions[name](article.node, ...more);
    const copy = iconButton("copy", say("copy"), () => copyText(article.node.text, copy), ".any-time");
    const versions =
      count > 1
        ? el(
            "span.versions",
            { role: "group", "aria-label": say("versions") },
            iconButton("previous", say("version.previous"), act("turn", -1)),
            el("span", {}, `${number}/${count}`),
            iconButton("next", say("version.next"), act("turn", 1)),
          )
        : null;
    const isCut = ["length", "stopped", "late", "broken"].includes(node.finish);
    const others =
      node.role === "assistant"
        ? [
            iconButton("retry", say("regenerate"), act("regenerate")),
            isCut ? button("continue", act("continue"), ".small") : null,
            node.prompt ? iconButton("read", say("what.it.read"), act("read"), ".any-time") : null,
          ]
        : [];
    return el(
      "div.tools",
      {},
      copy,
      iconButton("edit", say("edit"), act("edit"), ".any-time"),
      others,
      iconButton("remove", say("delete.message"), act("remove")),
      versions, // last, so that no button moves from under the pointer
    );
  }

  // Lets a person change a message in its place.
  edit(node, done) {
    const article = this.drawn.get(node.id);
    if (article.classList.contains("editing")) return article.querySelector(".editor").focus();
    const box = el("textarea.editor", { "aria-label": say("edit"), rows: "1" });
    box.value = node.text;
    const close = () => {
      this.drawn.delete(node.id);
      this.actions.refresh();
    };
    const save = () => {
      const text = box.value;
      close();
      if (text.trim() && text !== node.text) done(text);
    };
    box.addEventListener("keydown", ({ key }) => key === "Escape" && close());
    sendOnEnter(box, save);
    const send = button(node.role === "user" ? "send" : "save", save, ".primary");
    const buttons = el("div.row", {}, send, button("cancel", close));
    article.classList.add("editing");
    article.replaceChildren(box, buttons);
    box.style.height = `${Math.min(box.scrollHeight + 4, 400)}px`;
    return box.focus();
  }

  // Says above a message that the model no longer sees what stands before it.
  markCut(node) {
    this.log.querySelector(".cut")?.remove();
    const article = node && this.drawn.get(node.id);
    if (article) (article.closest(".versus") ?? article).before(el("p.cut", { role: "note" }, say("cut.above")));
  }

  follow(isFollowing) {
    this.isFollowing = isFollowing;
    this.jump.hidden = isFollowing;
  }

  isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.log;
    return scrollTop + clientHeight > scrollHeight - 60;
  }

  toEnd() {
    this.log.scrollTop = this.log.scrollHeight;
    this.follow(true);
  }
}
