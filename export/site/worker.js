// Runs the model in a thread of its own: loads it, answers requests, and posts results.
//
// In:  {type: "plan", site, device}, {type: "load"}, {type: "reply", prompt, settings, begun},
//      {type: "stop"}, {type: "inspect", what, layer, untrained}
// Out: {type: "planned", device, bytes, inspect} (to be downloaded, for replies and for Inspect),
//      {type: "progress", loaded, total},
//      {type: "ready", file, device, threads}, {type: "event", event}: see gptcore/page/reply.py,
//      {type: "seen", seen}: see view/inspect/inspect.js, {type: "error", key, values}: see view/words

import { Files, Told } from "./files.js";
import { Inspector } from "./inspector.js";
import { Model } from "./model.js";
import { Prompts } from "./prompts.js";
import { Tokens } from "./tokens.mjs";
import { Tokenizer } from "./vendor/tokenizers.min.mjs";

const POST_MILLISECONDS = 50;
const MODELS = { fp32: "onnx/model.onnx", fp16: "onnx/model_fp16.onnx", int8: "onnx/model_quantized.onnx" };
// The asyncify build supports WebGPU; the other one is half as large and runs on any CPU.
const BUILDS = {
  wasm: "vendor/ort-wasm-simd-threaded.wasm",
  webgpu: "vendor/ort-wasm-simd-threaded.asyncify.wasm",
};
const SEEDS = 2 ** 31; // drawn seeds are below it

const INSPECT = "onnx/inspect.onnx";
const UNTRAINED = "onnx/untrained.onnx"; // the same in its first run, other weights in each later one

const handlers = { plan, load, reply, inspect, stop: () => (stopped = true) };
let site, files, wanted, runtime, tokens, prompts, model, inspector;
let stopped = false;

self.onmessage = async ({ data }) => {
  try {
    await handlers[data.type](data);
  } catch (error) {
    const isTold = error instanceof Told;
    postMessage({ type: "error", ...(isTold ? { key: error.key, values: error.values } : explain(error)) });
  }
};

function explain(error) {
  const text = String(error?.message ?? error);
  // When memory runs out, ONNX Runtime throws only the address of a C++ exception.
  const isMemory = typeof error === "number" || /memory|alloc/i.test(text);
  return { key: isMemory ? "memory" : "model.failed", values: { text } };
}

// ---- Loading

// Chooses the files for a device: "wasm", or "webgpu", if the site has a file for it.
async function plan({ site: facts, device: wish }) {
  site = facts;
  files = new Files(site);
  const folder = `models/${site.model}/`;
  const has = (name) => folder + MODELS[name] in site.files;
  const onGpu = wish === "webgpu" && BUILDS.webgpu in site.files ? await variantOnGpu(has) : null;
  const device = onGpu ? "webgpu" : "wasm";
  const variant = onGpu ?? (has("int8") ? "int8" : "fp32");
  wanted = { device, folder, model: folder + MODELS[variant], wasm: BUILDS[device] };
  const bytes = await files.missing([wanted.model, wanted.wasm]);
  postMessage({ type: "planned", device, bytes, inspect: await files.missing([folder + INSPECT]) });
}

// A GPU computes in floating point; null: the site has no such file.
async function variantOnGpu(has) {
  const adapter = await navigator.gpu?.requestAdapter();
  if (has("fp16") && adapter?.features.has("shader-f16")) return "fp16";
  return has("fp32") ? "fp32" : null;
}

async function load() {
  const { device, folder, model: file, wasm: binary } = wanted;
  const progress = (done) => postMessage({ type: "progress", ...done });
  const glue = binary.replace(".wasm", ".mjs");
  const [contents, module] = await Promise.all([
    files.get([file, binary], progress),
    files.script(`vendor/ort.${device}.min.mjs`),
    files.script(glue), // which the runtime imports
    openTokenizer(folder),
  ]);
  runtime = module;
  const { wasm } = runtime.env;
  wasm.wasmPaths = { mjs: files.address(glue), wasm: files.address(binary) };
  wasm.wasmBinary = contents[binary];
  wasm.numThreads = self.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency, 4) : 1;
  const options = { executionProviders: [device] };
  if (device === "webgpu") options.preferredOutputLocation = presentsOnGpu(site.n_layer);
  const session = await runtime.InferenceSession.create(new Uint8Array(contents[file]), options);
  model = new Model(runtime, session, site.block_size);
  await model.step(model.read.nothing, [0]); // compiles the kernels, and reveals a GPU that does not work
  postMessage({ type: "ready", file: file.split("/").at(-1), device, threads: wasm.numThreads });
}

function presentsOnGpu(nLayer) {
  const names = [...Array(nLayer).keys()].flatMap((i) => [`present.${i}.key`, `present.${i}.value`]);
  return Object.fromEntries(names.map((name) => [name, "gpu-buffer"]));
}

async function openTokenizer(folder) {
  const names = ["tokenizer.json", "tokenizer_config.json"].map((name) => folder + name);
  const read = await Promise.all(names.map((name) => files.json(name)));
  tokens = new Tokens(Tokenizer, ...read, site.special_tokens);
  prompts = new Prompts(site, tokens);
}

async function inspect({ what, layer, untrained }) {
  if (untrained) {
    const fresh = await openInspector(UNTRAINED);
    try {
      return postMessage({ type: "seen", seen: await fresh.look(what, layer) });
    } finally {
      fresh.session.release();
    }
  }
  inspector ??= await openInspector(INSPECT);
  postMessage({ type: "seen", seen: await inspector.look(what, layer) });
}

async function openInspector(file) {
  const name = wanted.folder + file;
  const contents = await files.get([name], (done) => postMessage({ type: "progress", ...done }));
  const options = { executionProviders: ["wasm"] };
  const session = await runtime.InferenceSession.create(new Uint8Array(contents[name]), options);
  return new Inspector(runtime, session, { tokens, prompts, site });
}

// ---- Replies

async function reply({ prompt, settings: changed, begun }) {
  stopped = false;
  const started = performance.now();
  const usual = Object.fromEntries(site.settings.map((setting) => [setting.name, setting.default]));
  const { stop, seed, ...others } = { ...usual, ...changed };
  const chosen = { ...others, seed: seed < 0 ? Math.floor(Math.random() * SEEDS) : seed };
  const slides = typeof prompt === "string";
  const given = typeof begun === "string" ? tokens.encode(begun) : begun;
  const { ids, dropped } = slides
    ? { ids: prompts.text(prompt), dropped: 0 }
    : prompts.chat(prompt, chosen.max_tokens, given.length);
  const written = new Written({ started, ids, given, dropped, stops: stop, seed: chosen.seed });
  const ends = new Set(tokens.names.keys()); // a role token would begin another message
  const slid = slides && ((text) => prompts.end(text, Math.max(1, site.block_size >> 1)));
  const options = { settings: chosen, ends, slid, begun: given };
  const finish = await model.write(ids, options, (...token) => written.add(...token), isStopped);
  written.post(finish);
  if (!slides && !written.isCut) prompts.remember(ids, [...given, ...written.ids], written.text);
}

// Lets waiting messages arrive between two tokens, such as the one to stop; WebAssembly does not.
function isStopped() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve(stopped);
    };
    port2.postMessage(null);
  });
}

// A growing reply, posted as events.
class Written {
  constructor({ started, ids, given, dropped, stops, seed }) {
    Object.assign(this, { started, stops, nPrompt: ids.length + given.length });
    this.ids = [];
    this.decode = tokens.stream(); // of the text
    this.tell = tokens.stream(); // of the tokens that are told
    this.told = []; // since the last event
    this.text = given.map((id) => this.decode(id)).join("");
    this.posted = this.text.length;
    this.first = this.latest = this.postedAt = 0;
    const decode = tokens.stream();
    const begun = given.map((id) => [id, this.tell(id), null, []]);
    const read = ids.map((id) => (tokens.names.has(id) ? [id, tokens.names.get(id), true] : [id, decode(id)]));
    const event = { prompt: read, begun: this.text, tokens: begun, n_dropped: dropped, seed };
    postMessage({ type: "event", event });
  }

  // Returns whether a stop text ends the reply.
  add(id, logprob, top) {
    this.latest = performance.now();
    this.first ||= this.latest;
    this.ids.push(id);
    const before = this.text.length;
    this.text += this.decode(id);
    const named = top.map(([other, p]) => [other, tokens.name(other), p, tokens.names.has(other)]);
    this.told.push([id, this.tell(id), logprob, named]);
    const found = this.stops.map((stop) => this.text.indexOf(stop, Math.max(0, before - stop.length + 1)));
    const ends = found.filter((at) => at >= 0);
    this.isCut = ends.length > 0;
    if (this.isCut) this.text = this.text.slice(0, Math.min(...ends));
    else if (this.latest - this.postedAt >= POST_MILLISECONDS) this.post(null);
    return this.isCut;
  }

  post(finish) {
    if (finish && !this.isCut) this.text += this.decode();
    const end = this.text.length - (finish ? 0 : this.held());
    const seconds = (this.latest - this.first) / 1000;
    const n = this.ids.length;
    const event = {
      tokens: this.told,
      text: this.text.slice(this.posted, end),
      finish,
      n_prompt: this.nPrompt,
      n_new: n,
      first_ms: this.first && Math.round(this.first - this.started),
      speed: seconds > 0 ? (n - 1) / seconds : 0,
    };
    this.told = [];
    this.posted = Math.max(this.posted, end);
    this.postedAt = performance.now();
    postMessage({ type: "event", event });
  }

  // The length of the longest end of the text with which a stop text begins.
  held() {
    const lengths = this.stops.flatMap((stop) => [...Array(stop.length).keys()]);
    const isBegun = (n) => this.stops.some((stop) => n < stop.length && this.text.endsWith(stop.slice(0, n)));
    return Math.max(0, ...lengths.filter((n) => n > 0 && isBegun(n)));
  }
}
