// What a person does with one message of the open chat: the buttons below it call these.

import { add, below, remove, touch, turn, versionOf } from "../kept/tree.js";
import { say } from "../words.js";
import { showRead } from "../parts/dialogs.js";
import { textOf } from "../parts/glass.js";

export class Actions {
  // `stage`: the Conversation.
  constructor(stage) {
    this.stage = stage;
  }

  refresh() {
    this.stage.refresh();
  }

  async regenerate(node) {
    if (this.stage.isBusy) return;
    const nodes = this.stage.nodes();
    const at = nodes.findIndex(({ parent }) => parent === node.parent); // in a comparison, the other one
    const n = nodes.length - 1 - at;
    const { number } = versionOf(this.stage.chat, nodes[at]);
    await this.stage.reply(node.parent);
    if (n && this.stage.notice.element.hidden) this.stage.notice.tell(say("version.kept", { n, number }), { isError: false });
  }

  async continue(node) {
    const { chat } = this.stage;
    const known = await this.about(node).catch(() => undefined); // its text alone will do
    if (this.stage.isBusy || this.stage.chat !== chat || !(node.id in chat.nodes)) return;
    if (known) this.stage.known.set(node.id, known);
    const tokens = known?.tokens ?? [];
    const isWhole = node.text && textOf(tokens).startsWith(node.text); // or of an earlier part alone
    chat.chosen[node.parent] = node.id; // in a comparison, the other one may be
    this.stage.done = this.stage.write(node, isWhole ? this.begun(node, tokens) : node.text);
  }

  // `token`: the id and the text of what the model might have written in the place `i`.
  async branch(node, i, token) {
    const { tokens } = await this.about(node);
    await this.stage.settle();
    const begun = this.begun(node, [...tokens.slice(0, i), token]);
    const reply = this.stage.newReply(node.parent, { model: node.model });
    this.stage.known.set(reply.id, { tokens: tokens.slice(0, i) });
    this.stage.done = this.stage.write(reply, begun);
  }

  // What a reply begins with: ids, if its model is here; else their text, since the ids of another
  // model, or of a later one of this name with another tokenizer, are other words.
  begun(node, tokens) {
    const isOwn = node.tokenizer && this.stage.models.get(node.model)?.tokenizer === node.tokenizer;
    return isOwn ? tokens.map(([id]) => id) : textOf(tokens);
  }

  turn(node, step) {
    if (this.stage.isBusy) return;
    turn(this.stage.chat, node, step);
    this.stage.refresh();
    this.stage.save();
  }

  // Shows this version of a message.
  pick(node) {
    if (this.stage.isBusy) return;
    Object.assign(this.stage.chat.chosen, { [node.parent]: node.id });
    touch(this.stage.chat);
    this.stage.refresh();
    this.stage.save();
  }

  edit(node) {
    this.stage.messages.edit(node, async (text) => {
      await this.stage.settle(); // a reply may have begun meanwhile
      const { role, parent } = node;
      const made = add(this.stage.chat, parent, { role, text, ...(role === "assistant" && { finish: "end" }) });
      if (role === "user") this.stage.reply(made.id);
      else {
        this.stage.refresh();
        this.stage.save();
      }
    });
  }

  editLast(event) {
    const last = this.stage.nodes().findLast((node) => node.role === "user");
    if (!last) return;
    event.preventDefault();
    this.edit(last);
  }

  async remove(node) {
    const { chat } = this.stage;
    const ids = below(chat, node);
    const known = await Promise.all(ids.map((id) => this.about({ id }).catch(() => {}))); // for Undo
    if (this.stage.isBusy || this.stage.chat !== chat || !(node.id in chat.nodes)) return;
    const undo = remove(chat, node);
    const again = () => {
      undo(this.stage.chat);
      this.stage.refresh();
      const tokens = ids.map((id, i) => [id, known[i]]).filter(([, found]) => found);
      return this.stage.save(this.stage.chat, Object.fromEntries(tokens));
    };
    this.stage.messages.log.focus({ preventScroll: true }); // the pressed button goes
    this.stage.refresh();
    this.stage.save();
    this.stage.notice.tell(say("message.deleted", { n: ids.length }), { undo: again, isError: false });
  }

  async read(node) {
    const known = await this.about(node);
    if (known?.prompt) showRead(this.stage.element.closest(".gpt"), known);
  }

  // Returns {tokens, prompt, n_dropped} of a reply, if they are known.
  async about(node) {
    return this.stage.known.get(node.id) ?? (await this.stage.store.loadTokens(this.stage.chat.id, node.id));
  }

  async tokens(node) {
    return (await this.about(node))?.tokens;
  }
}
