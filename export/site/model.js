// The model in ONNX Runtime, and the loop that writes with it: gptcore/engine/generate.py in short.

import { likeliest, likelihood, random, sample } from "./sampling.js";
import { Told } from "./files.js";

const READ_TOGETHER = 64; // tokens of a prompt that are read at once; Stop waits for them
const N_TOP = 5; // likeliest tokens told for each token

export class Model {
  // `runtime`: the module of ONNX Runtime; `session`: the model's.
  constructor(runtime, session, blockSize) {
    Object.assign(this, { runtime, session, blockSize });
    const pasts = session.inputMetadata.filter(({ name }) => name.startsWith("past_key_values."));
    const nothing = ({ name, shape }) => [name, new runtime.Tensor("float32", [], [1, shape[1], 0, shape[3]])];
    // What was read: {ids, logits of the next token, past}. The prompt's state stays while a reply is
    // written, so that another reply to it begins with the very same numbers.
    this.read = { nothing: { ids: [], logits: null, past: Object.fromEntries(pasts.map(nothing)) } };
  }

  // Calls onToken(id, log probability, likeliest tokens) for each token after `ids`, until it returns
  // true; returns why it ended. With `slid` a text may exceed the context: each time that it is full,
  // what that function returns of it is read again.
  async write(ids, { settings, ends, slid, begun }, onToken, isStopped) {
    const [draw, reply] = [random(settings.seed), [...begun]];
    let text = [...ids, ...begun];
    const room = slid ? Infinity : this.blockSize - text.length;
    let state = await this.readOn("prompt", text, isStopped);
    for (let n = 1; state; n += 1) {
      const { logits } = state;
      if (!Number.isFinite(logits[likeliest(logits)])) throw new Told("told.not.finite");
      const id = sample(logits, settings, draw(), reply);
      if (ends.has(id)) return "end";
      reply.push(id);
      text.push(id);
      if (onToken(id, ...likelihood(logits, id, N_TOP))) return "end";
      if (n === settings.max_tokens) return "length";
      if (n === room) return "context";
      if (text.length > this.blockSize) text = slid(text);
      state = await this.readOn("latest", text, isStopped);
    }
    return "stopped";
  }

  // Reads a text after the part of it that was read already, and keeps the state under a name.
  // Returns null if it is stopped.
  async readOn(name, ids, isStopped) {
    const fits = ({ ids: known }) => known.length <= ids.length && known.every((id, i) => id === ids[i]);
    const fitting = Object.values(this.read).filter(fits);
    let state = fitting.reduce((best, other) => (other.ids.length > best.ids.length ? other : best));
    while (state.ids.length < ids.length) {
      if (await isStopped()) {
        this.free(state);
        return null;
      }
      const part = ids.slice(state.ids.length, state.ids.length + READ_TOGETHER);
      const next = await this.step(state, part);
      this.free(state);
      state = next;
    }
    const old = this.read[name];
    this.read[name] = state;
    if (old) this.free(old);
    return state;
  }

  async step({ ids: before, past }, ids) {
    const row = (values) => new this.runtime.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
    const all = [...before, ...ids];
    const { logits, ...presents } = await this.session.run({
      input_ids: row(ids),
      attention_mask: row(all.map(() => 1)),
      position_ids: row(ids.map((_, i) => before.length + i)),
      ...past,
    });
    const named = Object.entries(presents).map(([name, tensor]) => [name.replace("present", "past_key_values"), tensor]);
    return { ids: all, logits: logits.data.slice(-logits.dims[2]), past: Object.fromEntries(named) };
  }

  // Frees the memory of a state that is not kept; that of a GPU is not freed by itself.
  free(state) {
    if (Object.values(this.read).includes(state)) return;
    for (const tensor of Object.values(state.past)) tensor.dispose();
  }
}
