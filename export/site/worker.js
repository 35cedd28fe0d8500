// Runs the model in a thread of its own: loads it, answers requests, and posts results.
//
// In:  {type: "load", site, device}, {type: "generate", messages | text, settings}, {type: "stop"}
// Out: {type: "progress" | "ready" | "piece" | "error", ...}; the last piece has a `finish`

import {
  AutoModelForCausalLM,
  BaseStreamer,
  InterruptableStoppingCriteria,
  PreTrainedTokenizer,
  Tensor,
  env,
} from "./vendor/transformers.min.js";
import { Downloads } from "./downloads.js";
import { Prompts } from "./prompts.js";

const ROOT = new URL("./", import.meta.url).href;
const POST_MILLISECONDS = 50;
const MODELS = {
  fp32: "onnx/model.onnx",
  fp16: "onnx/model_fp16.onnx",
  q8: "onnx/model_quantized.onnx",
};
const CONFIGS = ["config.json", "generation_config.json"];
const TOKENIZER = ["tokenizer.json", "tokenizer_config.json"];

const stopping = new InterruptableStoppingCriteria();
const handlers = { load, generate, stop: () => stopping.interrupt() };
let site, tokenizer, prompts, model;
let seen = null; // the ids that the model has read, with their keys and values

self.onmessage = async ({ data }) => {
  try {
    await handlers[data.type](data);
  } catch (error) {
    seen = null;
    postMessage({ type: "error", text: explain(error) });
  }
};

function explain(error) {
  const text = String(error?.message ?? error);
  // When memory runs out, ONNX Runtime throws only the address of a C++ exception.
  const isMemory = typeof error === "number" || /memory|alloc/i.test(text);
  return isMemory ? `there is too little memory for the model (${text})` : text;
}

// Downloads and opens all files; `device` is "webgpu" or "wasm".
async function load({ site: facts, device }) {
  site = facts;
  const folder = `models/${site.model}/`;
  const dtype = await chooseDtype(device, (file) => folder + file in site.files);
  const build = `vendor/ort-wasm-simd-threaded${device === "webgpu" ? ".asyncify" : ""}`;
  const files = [...CONFIGS, ...TOKENIZER, MODELS[dtype]].map((name) => folder + name);
  const downloads = new Downloads(ROOT, site.files, [`${build}.wasm`, ...files]);

  env.fetch = (url) => downloads.fetch(url);
  env.allowLocalModels = true;
  env.allowRemoteModels = false;
  env.localModelPath = `${ROOT}models/`;
  env.useBrowserCache = false; // it would keep an old model for ever
  env.useWasmCache = false; // it loads code from a blob, which the page's policy forbids
  const { wasm } = env.backends.onnx;
  wasm.wasmPaths = { mjs: `${ROOT}${build}.mjs`, wasm: `${ROOT}${build}.wasm` };
  wasm.numThreads = self.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency, 4) : 1;
  try {
    wasm.wasmBinary = await (await downloads.fetch(`${ROOT}${build}.wasm`)).arrayBuffer();
    await openTokenizer(downloads, folder);
    await openModel({ device, dtype });
  } catch (error) {
    throw downloads.failure ?? error; // names the file; transformers.js's error does not
  }
  const file = MODELS[dtype].split("/").at(-1);
  postMessage({ type: "ready", file, device, threads: wasm.numThreads });
}

async function chooseDtype(device, has) {
  if (device === "wasm") return has(MODELS.q8) ? "q8" : "fp32";
  const adapter = await navigator.gpu.requestAdapter();
  return has(MODELS.fp16) && adapter.features.has("shader-f16") ? "fp16" : "fp32";
}

async function openTokenizer(downloads, folder) {
  const urls = TOKENIZER.map((name) => ROOT + folder + name);
  const responses = await Promise.all(urls.map((url) => downloads.fetch(url)));
  const [content, config] = await Promise.all(responses.map((response) => response.json()));
  // Without special tokens the tokenizer encodes every text as ordinary text.
  tokenizer = new PreTrainedTokenizer({ ...content, added_tokens: [] }, config);
  prompts = new Prompts(site, tokenizer);
}

async function openModel(options) {
  model = await AutoModelForCausalLM.from_pretrained(site.model, options);
  delete model.configs.generation_config; // the page's settings replace it
  const forward = model.forward.bind(model);
  model.forward = async (inputs) => {
    await messagesIn();
    return forward(inputs);
  };
  // A first run compiles the kernels now, and reveals a GPU that does not work.
  await model.generate({ inputs: row([0]), do_sample: true, max_new_tokens: 2 });
}

// Lets waiting messages arrive between two tokens, such as the one to stop; WebAssembly does not.
function messagesIn() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => resolve(port1.close());
    port2.postMessage(null);
  });
}

function row(ids) {
  return new Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]);
}

// Answers a conversation, or continues a text.
async function generate({ messages, text, settings }) {
  const started = performance.now();
  const { temperature, max_tokens: maxTokens, top_k: topK } = settings;
  const { ids, dropped } = messages
    ? prompts.chat(messages, maxTokens)
    : prompts.text(text, maxTokens);
  const room = site.block_size - ids.length;
  const reply = new Reply(started, ids.length, dropped);
  stopping.reset();
  const result = await model.generate({
    inputs: row(ids),
    attention_mask: row(ids.map(() => 1)),
    past_key_values: takeCache(ids),
    max_new_tokens: Math.min(maxTokens, room),
    do_sample: temperature > 0,
    temperature,
    top_k: topK,
    eos_token_id: Object.values(site.special_tokens), // a role token would begin another message
    stopping_criteria: stopping,
    streamer: reply,
    return_dict_in_generate: true,
  });
  const cache = result.past_key_values;
  seen = { ids: [...ids, ...reply.ids].slice(0, cache.get_seq_length()), cache };
  const full = maxTokens > room ? "context" : "length";
  reply.post(reply.ended ? "end" : stopping.interrupted ? "stopped" : full);
}

// Returns the last request's keys and values if this prompt begins with all of their ids.
function takeCache(ids) {
  const last = seen;
  seen = null; // generation changes it in place
  if (!last) return undefined;
  const fits = last.ids.length < ids.length && last.ids.every((id, i) => id === ids[i]);
  if (!fits) last.cache.dispose();
  return fits ? last.cache : undefined;
}

// Receives the new tokens from transformers.js.
class Reply extends BaseStreamer {
  constructor(started, nPrompt, dropped) {
    super();
    Object.assign(this, { started, nPrompt, dropped });
    this.ids = [];
    this.ended = false; // true if the model generated an end token
    this.first = this.latest = this.posted = this.n = 0;
    this.hasPrompt = false;
  }

  put([ids]) {
    if (!this.hasPrompt) {
      this.hasPrompt = true;
      return;
    }
    const id = Number(ids[0]);
    this.n += 1;
    this.latest = performance.now();
    this.first ||= this.latest;
    this.ended = Object.values(site.special_tokens).includes(id);
    if (!this.ended) this.ids.push(id);
    if (this.latest - this.posted >= POST_MILLISECONDS) this.post();
  }

  end() {}

  post(finish) {
    this.posted = performance.now();
    const text = this.ids.length ? tokenizer.decode(this.ids) : "";
    const seconds = (this.latest - this.first) / 1000;
    postMessage({
      type: "piece",
      // A character that is split over several tokens is shown once it is complete.
      text: finish ? text : text.replace(/\uFFFD+$/, ""),
      ids: this.ids,
      nPrompt: this.nPrompt,
      dropped: this.dropped,
      firstMilliseconds: this.first - this.started,
      tokensPerSecond: seconds > 0 ? (this.n - 1) / seconds : 0,
      finish,
    });
  }
}
