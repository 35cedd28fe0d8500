// The page of the site: the view, with the model in a worker of this browser.

import { mount } from "./view/view.js";
import { say } from "./view/words.js";

const LARGE = 1e6; // bytes that are downloaded without asking

// The worker, with what is waited for.
class Worked {
  constructor(site) {
    this.site = site;
    this.loading = null;
  }

  // Starts the worker, once; returns a promise of how many bytes are to be downloaded.
  get started() {
    this.starting ??= hasGpu().then((gpu) => this.start(gpu ? "webgpu" : "wasm"));
    return this.starting;
  }

  start(device) {
    this.worker?.terminate();
    this.worker = self.inside ? self.inside.startWorker() : startWorker(); // see single/unpack.js
    this.device = device;
    this.answered = Promise.resolve();
    return this.until("planned", { type: "plan", site: this.site, device });
  }

  // Posts a message, once what was asked before is answered and unless `signal` says that it is not
  // wanted any more, and waits for the last answer of a type; `onMessage` is told of all.
  until(type, message, onMessage = () => {}, signal = null) {
    const answer = this.answered.then(() => (signal?.aborted ? null : this.ask(type, message, onMessage)));
    this.answered = answer.catch(() => {});
    return answer;
  }

  ask(type, message, onMessage) {
    const { worker } = this;
    const isLast = (data) => data.type === type && (type !== "event" || data.event.finish);
    return new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => {
        const isError = data.type === "error";
        if (isError || isLast(data)) worker.onmessage = null; // what else is under way is not wanted
        if (isError) return reject(Object.assign(new Error(say(data.key, data.values)), { key: data.key }));
        onMessage(data);
        if (isLast(data)) resolve(data);
      };
      worker.onerror = ({ message: text }) => reject(new Error(say("worker.stopped", { text: text ?? "" })));
      worker.postMessage(message);
    });
  }

  // Loads the model, once; on a GPU that does not work, without it. A worker that could not be started,
  // as without a network, is started anew by the next try.
  load(onEvent) {
    this.loading ??= this.started
      .then(() => this.loadNow(onEvent))
      .catch((error) => {
        Object.assign(this, { loading: null, ...(!error.key && { starting: null }) });
        throw error;
      });
    return this.loading;
  }

  async loadNow(onEvent) {
    try {
      return await this.until("ready", { type: "load" }, onEvent);
    } catch (error) {
      if (this.device !== "webgpu" || error.key?.startsWith("file.")) throw error; // it was not the GPU
      console.warn(`no WebGPU: ${error.message}`);
      await this.start("wasm");
      return this.loadNow(onEvent);
    }
  }

  // Writes a reply. A GPU that is lost meanwhile, as when the machine sleeps, is not asked again.
  async reply(request, onEvent, signal) {
    const stop = () => this.worker.postMessage({ type: "stop" });
    signal.addEventListener("abort", stop);
    try {
      await this.until("event", { type: "reply", ...request }, ({ event }) => onEvent(event), signal);
    } catch (error) {
      if (this.device === "webgpu" && error.key === "model.failed") {
        this.loading = null;
        this.starting = this.start("wasm");
      }
      throw error;
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }
}

// The worker is started from a blob, because only then does this page's policy, which forbids requests
// to other hosts, apply to it.
function startWorker() {
  const address = new URL("worker.js", location.href).href;
  const code = new Blob([`import ${JSON.stringify(address)};`], { type: "text/javascript" });
  return new Worker(URL.createObjectURL(code), { type: "module" });
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

async function readSite() {
  const response = await fetch("./site.json", { cache: "no-cache" }).catch(() => null);
  if (!response?.ok) throw new Error(say(response?.status === 404 ? "file.missing" : "file.lost", { name: "site.json" }));
  return { ...(await response.json()), root: new URL("./", location.href).href };
}

function line({ file, device, threads }, { parameters }) {
  const where = device === "webgpu" ? "WebGPU" : "WebAssembly";
  return say("device.here", { parameters, where, n: threads, file });
}

async function main() {
  const site = await readSite();
  document.title = site.name;
  navigator.serviceWorker?.register("offline.js").catch(() => {}); // only https and this machine have it
  const worked = new Worked(site);
  const load = async () => {
    const ready = await worked.load((data) => view.stage.notice.follow(data));
    view.describe(line(ready, site));
    view.stage.notice.tell("");
  };
  const ask = async (request, onEvent, signal) => {
    const stopped = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    await Promise.race([load(), stopped]); // the model is loaded, though its first reply is not wanted
    await worked.reply(request, onEvent, signal);
  };
  const inspect = async (request, onEvent) => {
    await worked.load(onEvent);
    const { seen } = await worked.until("seen", { type: "inspect", ...request }, onEvent);
    return seen;
  };
  const planned = () => worked.started.catch(() => ({ bytes: 0 })); // a try to load the model tells of it
  const isHere = async () => Boolean(worked.loading) || (await planned()).bytes < LARGE;
  const view = await mount(document.getElementById("view"), { facts: site, ask, inspect, isHere });
  const tryLoad = () =>
    load().catch((error) => view.stage.notice.tell(error.message, { undo: tryLoad, label: say("retry") }));
  const { bytes } = await planned();
  if (bytes < LARGE) return tryLoad();
  const mb = (bytes / 1e6).toFixed(1);
  return view.stage.notice.tell(say("download.offer", { mb }), { undo: tryLoad, label: say("download"), isError: false });
}

main().catch((error) => {
  document.getElementById("view").textContent = error.message;
});
