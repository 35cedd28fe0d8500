// The page: sends what the user types to the worker and shows what the worker posts. Texts of the
// user and of the model are set as text, never as HTML.

import { ChatMode } from "./chat.js";
import { TextMode } from "./text.js";

const FINISH = {
  end: "the reply is complete",
  length: "stopped at max tokens",
  context: "stopped: the context is full",
  stopped: "stopped by you",
};

const $ = (id) => document.getElementById(id);
const number = (n) => Math.round(n).toLocaleString("en");
const megabytes = (n) => (n / 1e6).toFixed(1);

let site, mode, worker;
let state = "loading"; // then "idle" or "busy"; "failed" if the model cannot be loaded

// ---- The worker

// The worker is started from a blob, because only then does this page's policy, which forbids
// requests to other hosts, apply to it.
function startWorker(device) {
  const address = new URL("worker.js", location.href).href;
  const code = new Blob([`import ${JSON.stringify(address)};`], { type: "text/javascript" });
  worker = new Worker(URL.createObjectURL(code), { type: "module" });
  worker.onmessage = ({ data }) => handlers[data.type](data, device);
  worker.onerror = (event) => {
    const why = event.message || "a file of vendor/ is missing; build the site again";
    handlers.error({ text: `the model's worker stopped: ${why}` }, device);
  };
  worker.postMessage({ type: "load", site, device });
}

async function hasGpu() {
  try {
    const adapter = await navigator.gpu?.requestAdapter();
    // A fallback adapter computes on the CPU and is slower than WebAssembly.
    return Boolean(adapter) && !adapter.info?.isFallbackAdapter;
  } catch {
    return false;
  }
}

const handlers = {
  progress({ loaded, total }) {
    $("progress").hidden = false;
    $("progress").value = loaded / total;
    const text = `downloading: ${megabytes(loaded)} of ${megabytes(total)} MB`;
    $("status").textContent = loaded < total ? text : "opening the model ...";
  },

  ready({ file, device, threads }) {
    $("progress").hidden = true;
    $("status").textContent = "";
    const where = device === "webgpu" ? "WebGPU" : "WebAssembly";
    const cores = device === "webgpu" ? "" : ` (${threads} thread${threads === 1 ? "" : "s"})`;
    $("device").textContent =
      `${number(site.parameters)} parameters in this browser, on ${where}${cores} · ${file} · ` +
      `transformers.js ${site.transformers}`;
    setState("idle");
  },

  piece(piece) {
    $("status").textContent = figures(piece);
    mode.show(piece);
    if (piece.finish) setState("idle");
  },

  error({ text }, device) {
    if (state === "loading" && device === "webgpu") {
      console.warn(`no WebGPU: ${text}`);
      worker.terminate();
      startWorker("wasm");
      return;
    }
    $("progress").hidden = true;
    $("status").textContent = "";
    showError(text);
    if (state === "busy") mode.undo();
    setState(state === "busy" ? "idle" : "failed");
  },
};

function figures({ ids, nPrompt, dropped, firstMilliseconds, tokensPerSecond, finish }) {
  const used = nPrompt + ids.length;
  return [
    `${ids.length} token${ids.length === 1 ? "" : "s"}`,
    tokensPerSecond && `${number(tokensPerSecond)} tokens/s`,
    `first token after ${number(firstMilliseconds)} ms`,
    `context ${used} of ${site.block_size}`,
    dropped && mode.leftOut(dropped),
    FINISH[finish],
  ]
    .filter(Boolean)
    .join(" · ");
}

// ---- The page

function ask(request) {
  const inputs = [...$("settings").querySelectorAll("input")];
  const settings = Object.fromEntries(inputs.map((input) => [input.id, input.valueAsNumber]));
  showError("");
  $("status").textContent = "reading ...";
  setState("busy");
  worker.postMessage({ type: "generate", ...request, settings });
}

function setState(next) {
  state = next;
  const isBusy = state === "busy";
  $("go").disabled = state !== "idle";
  $("go").hidden = isBusy;
  $("stop").hidden = !isBusy;
  $("retry").disabled = state !== "idle" || !mode.canRetry();
  $("clear").disabled = state !== "idle";
  mode.setBusy(isBusy);
}

function showError(text) {
  $("error").textContent = text && `⚠ ${text}`;
  $("error").hidden = !text;
}

function send() {
  if (state !== "idle") return;
  if (mode.isEmpty()) showError("type something first");
  else mode.send();
}

function prepareSettings() {
  const most = site.block_size - 1;
  const maxTokens = {
    name: "max_tokens",
    label: "Max tokens",
    lowest: 1,
    highest: most,
    step: 1,
    default: Math.min(256, Math.floor(most / 2)),
    info: "tokens per reply",
  };
  const [temperature, ...others] = site.settings;
  $("settings").append(...[temperature, maxTokens, ...others].map(slider));
  $("settings").open = matchMedia("(min-width: 800px)").matches;
}

// Returns a slider with its name, its value and a description.
function slider({ name, label, lowest, highest, step, default: value, info }) {
  const [box, head, shown, input, small] = ["label", "span", "output", "input", "small"].map((tag) =>
    document.createElement(tag),
  );
  Object.assign(input, { id: name, type: "range", min: lowest, max: highest, step, value });
  const show = () => (shown.value = input.value);
  input.addEventListener("input", show);
  show();
  box.htmlFor = name;
  small.textContent = info;
  head.append(`${label} `, shown);
  box.append(head, input, small);
  return box;
}

async function main() {
  const response = await fetch("site.json", { cache: "no-cache" });
  if (!response.ok) throw new Error("site.json is missing from this site: build it again");
  site = await response.json();
  document.title = $("name").textContent = site.name;
  mode = site.chat ? new ChatMode($, ask) : new TextMode($, ask);
  prepareSettings();
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  $("box").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !mode.isSendKey(event)) return;
    event.preventDefault();
    send();
  });
  $("stop").addEventListener("click", () => worker.postMessage({ type: "stop" }));
  $("retry").addEventListener("click", () => mode.retry());
  $("clear").addEventListener("click", () => {
    mode.clear();
    showError("");
    $("status").textContent = "";
    setState("idle");
  });
  $("status").textContent = "starting ...";
  startWorker((await hasGpu()) ? "webgpu" : "wasm");
}

main().catch((error) => {
  $("status").textContent = "";
  showError(error.message);
});
