// A model of an embedding kit, for Node and browsers: what CONTRACT.md says, with ONNX Runtime and
// Hugging Face's tokenizers. Copy it together with tokens.mjs, which the static site uses, too.

import { stripped, Tokens } from "../../export/site/tokens.mjs";

export class Kit {
  // `ort`: onnxruntime-node or onnxruntime-web. `read(name)` gives a file of the kit as JSON, and
  // `open(name)` a session of one of its graphs.
  static async open(ort, Tokenizer, { read, open }) {
    const kit = new Kit();
    kit.ort = ort;
    kit.contract = await read("contract.json");
    const files = [await read("tokenizer.json"), await read("tokenizer_config.json")];
    kit.tokens = new Tokens(Tokenizer, ...files, kit.contract.tokenizer.special);
    kit.stop = new Set(kit.contract.stop);
    kit.session = await open(kit.contract.files.sampling);
    return kit;
  }

  // Returns the ids of a template's parts. Words beside each other are encoded together.
  join(parts) {
    const [ids, rest] = parts.reduce(
      ([ids, text], part) =>
        typeof part === "number" ? [[...ids, ...this.tokens.encode(text), part], ""] : [ids, text + part],
      [[], ""],
    );
    return [...ids, ...this.tokens.encode(rest)];
  }

  prompt(messages) {
    const form = this.contract.chat;
    if (!form) return this.join([...this.contract.text, messages.at(-1).content]); // it only continues texts
    const parts = [...(messages[0].role === "system" ? form.opening : form.opening_alone)];
    for (const { role, content } of messages) {
      const [before, after] = form[role];
      parts.push(...before, form.trims ? stripped(content) : content, ...after);
    }
    return this.join([...parts, ...form.reply]);
  }

  emptyCache() {
    const caches = this.contract.graphs.sampling.inputs.filter(({ name }) => name.startsWith("past"));
    const empty = ([, heads, , size]) => new this.ort.Tensor("float32", new Float32Array(), [1, heads, 0, size]);
    return Object.fromEntries(caches.map(({ name, shape }) => [name, empty(shape)]));
  }

  // Returns a graph's outputs for ids after what is cached.
  run(session, ids, cache, more = {}) {
    const past = Object.values(cache)[0].dims[2];
    const total = past + ids.length;
    const row = (numbers) => new this.ort.Tensor("int64", BigInt64Array.from(numbers, BigInt), [1, numbers.length]);
    const position_ids = row(ids.map((_, i) => past + i));
    const attention_mask = row(Array(total).fill(1));
    return session.run({ input_ids: row(ids), position_ids, attention_mask, ...cache, ...more });
  }

  // Yields up to n ids, of which one that ends the reply is the last.
  async *write(ids, n, { temperature = 0, top_k = 50, top_p = 1, draw = Math.random } = {}) {
    const { Tensor } = this.ort;
    const settings = {
      temperature: new Tensor("float32", [temperature], [1]),
      top_k: new Tensor("int64", [BigInt(top_k)], [1]),
      top_p: new Tensor("float32", [top_p], [1]),
    };
    let cache = this.emptyCache();
    const room = this.contract.limits.context - ids.length;
    if (room < 1) throw new Error(`the message has ${ids.length} tokens, too many for the context`);
    for (let i = 0; i < Math.min(n, room); i += 1) {
      const draws = new Tensor("float32", [draw()], [1]);
      const made = await this.run(this.session, ids, cache, { draws, ...settings });
      cache = Object.fromEntries(
        Object.keys(cache).map((name) => [name, made[name.replace("past_key_values", "present")]]),
      );
      ids = [Number(made.next_ids.data[0])];
      yield ids[0];
      if (this.stop.has(ids[0])) return;
    }
  }

  // Returns lines that say how many of the kit's vectors come out as they should.
  async check(vectors, portable) {
    const { texts, prompts, draws, logits_limit } = vectors;
    const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);
    const right = { texts: 0, prompts: 0, logits: 0, greedy: 0, draws: 0 };
    for (const { text, ids } of texts) right.texts += equal(this.tokens.encode(text), ids);
    for (const { messages, text, ids, logits, greedy } of prompts) {
      const got = messages ? this.prompt(messages) : this.join([...this.contract.text, text]);
      right.prompts += equal(got, ids);
      const all = (await this.run(portable, ids, this.emptyCache())).logits;
      const last = all.data.subarray(-all.dims[2]);
      right.logits += logits.every(([id, value]) => Math.abs(last[id] - value) <= logits_limit);
      right.greedy += equal(await collect(this.write(ids, greedy.length)), greedy);
    }
    for (const { prompt, id, draw, ...how } of draws) {
      const got = await collect(this.write(prompts[prompt].ids, 1, { ...how, draw: () => draw }));
      right.draws += equal(got, [id]);
    }
    const of = (name) => (vectors[name] ?? prompts).length;
    return Object.entries(right).map(([name, n]) => `${name}: ${n} of ${of(name)}`);
  }
}

async function collect(values) {
  const found = [];
  for await (const value of values) found.push(value);
  return found;
}
