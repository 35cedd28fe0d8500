// Converts texts and conversations to token ids, as gptcore/text/chat_template.py does. Prompts are
// built from ids, never by parsing rendered text, so no typed text can become a special token.

import { Told } from "./files.js";
import { stripped } from "./tokens.mjs";

const MOST_REPLIES = 200; // that are remembered; no conversation in the context has as many
const NEAR = 64; // ids before a reply that tell its conversation, as in gptcore/engine/replies.py

export class Prompts {
  // `site`: {block_size, chat_format, max_token_bytes}.
  constructor(site, tokens) {
    Object.assign(this, { site, tokens });
    const names = Object.keys(tokens.special).sort((a, b) => b.length - a.length);
    const escaped = names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    this.special = new RegExp(`(${escaped.join("|")})`);
    this.replies = new Map(); // the ids that a reply was generated as, by the ids before and its text
  }

  // Returns the ids of a conversation that ends with the user's message, and how many of its oldest
  // messages are left out to fit. `nBegun` ids of the reply are given already; they stand in the
  // room that is reserved for it: a quarter of the context (or maxTokens, if less).
  chat(messages, maxTokens, nBegun = 0) {
    const size = this.site.block_size;
    const budget = size - Math.min(maxTokens, Math.floor(size / 4));
    this.checkLengths(messages, budget);
    const found = this.cut(messages, budget);
    const needed = found.ids.length;
    if (needed > budget) throw new Told("told.too.long", { needed, budget });
    const left = size - nBegun - 1;
    const fitting = needed > left ? this.cut(messages, left) : found;
    if (fitting.ids.length > left) throw new Told("told.begun", { has: nBegun, needed: fitting.ids.length, size });
    return fitting;
  }

  // Returns the ids of a whole conversation in at most `most` tokens, and how many of its oldest
  // messages, and of its last reply's tokens, are left out: what Inspect looks at. Of a reply that
  // is too long, the beginning is kept, after the message that it answers.
  whole(messages, most) {
    const isPrompt = messages.at(-1).role !== "assistant";
    this.checkLengths(messages, this.site.block_size);
    const { ids, dropped } = this.cut(messages, most, isPrompt);
    if (ids.length <= most) return { ids, dropped, cut: 0 };
    const { system, turns } = splitSystem(messages);
    const asked = isPrompt ? [] : turns.slice(-2, -1).filter(({ role }) => role === "user");
    const needed = isPrompt ? ids.length : this.render([...system, ...asked]).length;
    if (needed > most) throw new Told("inspect.long", { needed, most });
    const all = this.render([...system, ...asked, turns.at(-1)], false);
    return { ids: all.slice(0, most), dropped: turns.length - asked.length - 1, cut: Math.max(0, all.length - most) };
  }

  // Returns the ids of as much of a conversation as fits. It keeps its system message and its last
  // one, though these be more than `limit` ids, and is cut only before a user's message.
  cut(messages, limit, isPrompt = true) {
    const { system, turns } = splitSystem(messages);
    // Each message takes a token at least, and each token holds so many bytes: of a long history,
    // only the end is encoded. The fewer messages, the shorter the ids.
    const ids = (start) => this.render([...system, ...turns.slice(start)], isPrompt);
    let nLeft = this.site.max_token_bytes * limit;
    const isTooLong = ({ content }) => (nLeft -= content.length) < 0;
    const first = Math.max(turns.length - limit, turns.findLastIndex(isTooLong) + 1);
    const isStart = (i) => i >= first && (i === 0 || turns[i].role === "user");
    const starts = [...turns.keys()].filter(isStart);
    const start = starts[firstWhere(starts, (at) => ids(at).length <= limit)] ?? Math.max(turns.length - 1, 0);
    return { ids: ids(start), dropped: start };
  }

  // Returns the ids that open a plain text.
  opening() {
    return this.split(this.site.chat_format.text).filter(Array.isArray).flat();
  }

  // Returns the ids of a text to continue, the end of one that is longer than the context.
  text(text) {
    const { block_size: size, max_token_bytes: widest } = this.site;
    const end = text.slice(-widest * size); // encoding a very long text would take long
    const ids = [...this.opening(), ...this.tokens.encode(end)];
    if (!ids.length) throw new Told("inspect.empty");
    return this.end(ids, size);
  }

  // Returns at most `n` ids of a text: its end, after what opens it, which many models need.
  end(ids, n) {
    if (ids.length <= n) return ids;
    const opening = this.opening();
    const kept = opening.every((id, i) => id === ids[i]) ? opening.slice(0, n - 1) : [];
    return [...kept, ...ids.slice(ids.length - n + kept.length)];
  }

  render(messages, isPrompt = true) {
    const form = this.site.chat_format;
    const ids = [];
    let words = ""; // that are encoded together
    const add = (more) => {
      for (const id of this.tokens.encode(words)) ids.push(id); // more than a call may have arguments
      for (const id of more) ids.push(id);
      words = "";
    };
    const write = (template) => {
      for (const part of this.split(template)) {
        if (typeof part === "string") words += part;
        else add(part);
      }
    };
    write(messages[0]?.role === "system" ? form.opening : form.opening_alone);
    for (const { role, content } of messages) {
      const [before, after] = form[role];
      write(before);
      const text = form.trims ? stripped(content) : content;
      const known = role === "assistant" && this.known([...ids.slice(-NEAR), ...this.tokens.encode(words)], text);
      if (known) add(known);
      else words += text;
      write(after);
    }
    if (isPrompt) write(form.prompt);
    add([]);
    return ids;
  }

  known(before, text) {
    return this.replies.get(key(before, text));
  }

  // Keeps the ids of a reply, so that its cache fits the next prompt: its text may encode to others.
  remember(before, ids, text) {
    this.replies.set(key(before, text), ids);
    const [oldest] = this.replies.keys();
    if (this.replies.size > MOST_REPLIES) this.replies.delete(oldest);
  }

  // Splits a template into the ids of its special tokens and the words between them.
  split(template) {
    const { special } = this.tokens;
    const parts = template.split(this.special);
    return parts.map((part) => (Object.hasOwn(special, part) ? [special[part]] : part));
  }

  // Throws, without encoding, if a text has more characters than `budget` tokens can hold.
  checkLength(text, budget) {
    const most = this.site.max_token_bytes * budget;
    if (text.length > most) throw new Told("told.too.large", { what: "message", has: text.length, budget, most });
  }

  // The same for the messages that are always kept.
  checkLengths(messages, budget) {
    const { system, turns } = splitSystem(messages);
    for (const { content } of [...system, ...turns.slice(-1)]) this.checkLength(content, budget);
  }
}

// Returns the system message, if there is one, in a list, and the messages after it.
function splitSystem(messages) {
  const n = Number(messages[0]?.role === "system");
  return { system: messages.slice(0, n), turns: messages.slice(n) };
}

const key = (ids, text) => `${ids.slice(-NEAR).join()} ${text}`;

// Returns the first index of an item that fits, if all after it do too; else the number of items.
function firstWhere(items, fits) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (fits(items[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}
