// What the graph onnx/inspect.onnx tells of a text, as gptcore/inspection.py does.

import { Told } from "./files.js";
import { likelihood } from "./sampling.js";

const MOST = 128; // tokens that are drawn
const N_NEXT = 8; // likeliest tokens after each
const OF_LAYERS = ["attention", "scores", "queries", "keys", "values", "normed"];

export class Inspector {
  constructor(runtime, session, { tokens, prompts, site }) {
    Object.assign(this, { runtime, session, tokens, prompts, site });
  }

  // `what`: a text, messages, or ids; arrays of heads are those of one layer.
  async look(what, layer) {
    const { ids, dropped = 0, cut = 0 } = this.read(what);
    const n = ids.length;
    const input = new this.runtime.Tensor("int64", BigInt64Array.from(ids, BigInt), [1, n]);
    const outputs = await this.session.run({ input_ids: input });
    const width = outputs.logits.dims[2];
    const following = ids.map((_, i) => {
      const [, top] = likelihood(outputs.logits.data.subarray(i * width, (i + 1) * width), 0, N_NEXT);
      return top.map(([id, logprob]) => [id, this.name(id), logprob]);
    });
    return {
      tokens: ids.map((id) => [id, this.name(id), this.tokens.names.has(id)]),
      following,
      n_dropped: dropped,
      n_cut: cut,
      arrays: {
        embeddings: whole(outputs.embeddings),
        positions: whole(outputs.positions),
        ...Object.fromEntries(OF_LAYERS.map((name) => [name, part(outputs[name], layer)])),
      },
    };
  }

  read(what) {
    const most = Math.min(MOST, this.site.block_size);
    if (!(typeof what === "string" ? what.trim() : what).length) throw new Told("inspect.empty");
    if (typeof what !== "string") {
      const isIds = typeof what[0] === "number";
      if (isIds && what.length > most) throw new Told("inspect.long", { needed: what.length, most });
      return isIds ? { ids: what } : this.prompts.whole(what, most);
    }
    this.prompts.checkLength(what, most);
    if (this.site.chat) return this.prompts.whole([{ role: "user", content: what }], most);
    const ids = [...this.prompts.opening(), ...this.tokens.encode(what)];
    if (ids.length > most) throw new Told("inspect.long", { needed: ids.length, most });
    return { ids };
  }

  // A token's text; bytes that are no whole character are shown as such.
  name(id) {
    const name = this.tokens.name(id);
    if (!name.includes("\ufffd")) return name;
    return Array.from(this.tokens.bytes(id), (byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
  }
}

const whole = ({ data, dims }) => ({ shape: dims.slice(1), data: data.slice() });

// One layer of an output (1, L, ...).
function part({ data, dims }, layer) {
  const [, , ...shape] = dims;
  const size = shape.reduce((a, b) => a * b, 1);
  return { shape, data: data.slice(layer * size, (layer + 1) * size) };
}
