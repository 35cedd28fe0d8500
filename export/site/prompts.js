// Converts texts and conversations to token ids, as gptcore/text/chat_template.py does. Prompts are
// built from ids, never by parsing rendered text, so no typed text can become a special token.

export class Prompts {
  constructor(site, tokenizer) {
    this.site = site;
    this.tokenizer = tokenizer;
    const names = Object.keys(site.special_tokens).sort((a, b) => b.length - a.length);
    const escaped = names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    this.special = new RegExp(`(${escaped.join("|")})`);
  }

  // Returns the ids of a conversation that ends with the user's message, and how many of its
  // oldest messages are left out to fit. A conversation is cut only before a user's message.
  chat(messages, maxTokens) {
    const budget = this.budget(maxTokens);
    this.checkLength(messages.at(-1).content, budget);
    let ids;
    for (let start = 0; start < messages.length; start += 1) {
      if (messages[start].role !== "user") continue;
      ids = this.render(messages.slice(start));
      if (ids.length <= budget) return { ids, dropped: start };
    }
    throw new Error(
      `the message is too long: it needs ${ids.length} tokens and ${budget} fit; shorten it`,
    );
  }

  // Returns the ids of a text to continue, and how many ids are left out at its beginning.
  text(text, maxTokens) {
    const budget = this.budget(maxTokens);
    // The model sees no more than this, and encoding a very long text would take long.
    const end = text.slice(-this.site.max_token_bytes * budget);
    const opening = this.split(this.site.chat_format.text);
    const ids = this.join([...opening.filter(Array.isArray), end]);
    return { ids: ids.slice(-budget), dropped: Math.max(0, ids.length - budget) };
  }

  // A quarter of the context (or maxTokens, if less) is reserved for the reply.
  budget(maxTokens) {
    const context = this.site.block_size;
    return context - Math.min(maxTokens, Math.floor(context / 4));
  }

  // Replies keep the `ids` that they were generated as, so that the cached keys and values fit.
  render(messages) {
    const form = this.site.chat_format;
    const parts = this.split(form.opening_alone);
    for (const { role, content, ids } of messages) {
      const [before, after] = form[role];
      const body = ids ?? (form.trims ? content.trim() : content);
      parts.push(...this.split(before), body, ...this.split(after));
    }
    return this.join([...parts, ...this.split(form.prompt)]);
  }

  // Splits a template into the ids of its special tokens and the words between them.
  split(template) {
    const { special_tokens: special } = this.site;
    const parts = template.split(this.special);
    return parts.map((part) => (Object.hasOwn(special, part) ? [special[part]] : part));
  }

  // Joins the parts to ids; words that follow one another are encoded together.
  join(parts) {
    let ids = [];
    let words = "";
    for (const part of [...parts, []]) {
      if (typeof part === "string") {
        words += part;
      } else {
        ids = [...ids, ...this.encode(words), ...part];
        words = "";
      }
    }
    return ids;
  }

  encode(text) {
    return text ? this.tokenizer.encode(text, { add_special_tokens: false }) : [];
  }

  // Throws, without encoding, if a text has more characters than `budget` tokens can hold.
  checkLength(text, budget) {
    const limit = this.site.max_token_bytes * budget;
    if (text.length > limit) {
      const [has, most] = [text.length, limit].map((n) => n.toLocaleString("en"));
      throw new Error(
        `the message is too long: it has ${has} characters, and ${budget} tokens hold at most ` +
          `${most}; shorten it`,
      );
    }
  }
}
