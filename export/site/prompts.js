// Converts texts and conversations to token ids, as gptcore/text/chat_template.py does. Prompts are
// built from ids, never by parsing rendered text, so no typed text can become a special token.

import { Told } from "./files.js";

const MOST_REPLIES = 200; // that are remembered; no conversation in the context has as many

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
  // messages are left out to fit. A conversation is cut only before a user's message, and keeps its
  // system message. `nBegun` ids of the reply are given already.
  chat(messages, maxTokens, nBegun = 0) {
    const budget = this.budget(maxTokens) - nBegun;
    const system = messages.filter(({ role }, i) => i === 0 && role === "system");
    const turns = messages.slice(system.length);
    for (const { content } of [...system, turns.at(-1)]) this.checkLength(content, budget);
    // Each message takes a token at least. The fewer messages, the shorter the prompt.
    const prompt = (start) => this.render([...system, ...turns.slice(start)]);
    const starts = [...turns.keys()].filter((i) => turns[i].role === "user" && turns.length - i <= budget);
    const start = starts[firstWhere(starts, (at) => prompt(at).length <= budget)];
    if (start !== undefined) return { ids: prompt(start), dropped: start };
    const needed = prompt(turns.length - 1).length;
    throw new Told("told.too.long", { needed, budget });
  }

  // Returns the ids of a text to continue, and how many ids are left out at its beginning.
  text(text) {
    const { block_size: size, max_token_bytes: widest, chat_format: form } = this.site;
    const end = text.slice(-widest * size); // encoding a very long text would take long
    const opening = this.split(form.text).filter(Array.isArray).flat();
    const ids = [...opening, ...this.tokens.encode(end)];
    return { ids: ids.slice(-size), dropped: Math.max(0, ids.length - size) };
  }

  // Returns the ids of a whole conversation in at most `most` tokens, and how many of its oldest
  // messages are left out: what Inspect looks at.
  whole(messages, most) {
    for (let start = Math.max(0, messages.length - (most >> 1)); start < messages.length; start += 1) {
      const ids = this.render(messages.slice(start), messages.at(-1).role !== "assistant");
      if (ids.length <= most) return { ids, dropped: start };
    }
    const needed = this.render(messages.slice(-1)).length;
    throw new Told("inspect.long", { needed, most });
  }

  // A quarter of the context (or maxTokens, if less) is reserved for the reply.
  budget(maxTokens) {
    const context = this.site.block_size;
    return context - Math.min(maxTokens, Math.floor(context / 4));
  }

  render(messages, isPrompt = true) {
    const form = this.site.chat_format;
    const ids = [];
    let words = ""; // that are encoded together
    const write = (template) => {
      for (const part of this.split(template)) {
        if (typeof part === "string") words += part;
        else {
          ids.push(...this.tokens.encode(words), ...part);
          words = "";
        }
      }
    };
    write(messages[0].role === "system" ? form.opening : form.opening_alone);
    for (const { role, content } of messages) {
      const [before, after] = form[role];
      write(before);
      const text = form.trims ? content.trim() : content;
      const known = role === "assistant" && this.known([...ids, ...this.tokens.encode(words)], text);
      if (known) {
        ids.push(...this.tokens.encode(words), ...known);
        words = "";
      } else words += text;
      write(after);
    }
    if (isPrompt) write(form.prompt);
    return [...ids, ...this.tokens.encode(words)];
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
}

const key = (ids, text) => `${ids.join()} ${text}`;

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
