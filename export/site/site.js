// The page of the site: the view, with the model in a worker of this browser.

import { mount } from "./view/view.js";
import { say } from "./view/words.js";

const LARGE = 1e6; // bytes that are downloaded without asking
// Errors after which a worker is not asked again, by their keys; ONNX Runtime, for one, starts only once.
const BROKEN = ["memory", "model.failed", "worker.stopped"];

// The worker, which is asked for one thing at a time.
class Worked {
  // `follow` is told what the worker posts while it loads the model, at last {type: "ready", ...} or,
  // if it cannot be loaded, {type: "failed", error}.
  constructor(site, follow) {
    Object.assign(this, { site, follow, last: Promise.resolve(), worker: null, plan: null, isLoaded: false, hasSeen: false });
  }

  // Does something once all that was asked before is done.
  inTurn(act) {
    const done = this.last.then(act);
    this.last = done.catch(() => {});
    return done;
  }

  // Returns what the worker plans, {device, bytes, inspect}; starts one if there is none.
  async planNow() {
    if (this.plan) return this.plan;
    this.wish ??= (await hasGpu()) ? "webgpu" : "wasm";
    this.worker = self.inside ? self.inside.startWorker() : startWorker(); // see single/unpack.js
    this.plan = await this.ask("planned", { type: "plan", site: this.site, device: this.wish });
    return this.plan;
  }

  // Loads the model, if it is not loaded; on a GPU that does not work, without it.
  async loadNow() {
    if (this.isLoaded) return;
    let device;
    try {
      ({ device } = await this.planNow());
      await this.ask("ready", { type: "load" }, this.follow);
      this.isLoaded = true;
    } catch (error) {
      if (device === "webgpu" && !this.worker) {
        console.warn(`no WebGPU: ${error.message}`);
        return this.loadNow();
      }
      this.follow({ type: "failed", error });
      throw error;
    }
  }

  load() {
    return this.inTurn(() => this.loadNow());
  }

  // Writes a reply; once more without the GPU, if that was lost before the first word. A person who
  // stops it need not wait for the model, which is loaded all the same.
  async reply(request, onEvent, signal) {
    const stopped = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    await Promise.race([this.load(), stopped]);
    await this.inTurn(async () => {
      await this.loadNow(); // anew, if the reply before it failed
      const { device } = this.plan;
      let isBegun = false;
      const write = () => this.write(request, (event) => ((isBegun ||= event.text), onEvent(event)), signal);
      await write().catch(async (error) => {
        if (device !== "webgpu" || this.worker || isBegun) throw error;
        console.warn(`no WebGPU any more: ${error.message}`);
        await this.loadNow();
        await write();
      });
    });
  }

  async write(request, onEvent, signal) {
    if (signal.aborted) return;
    const stop = () => this.worker.postMessage({ type: "stop" });
    signal.addEventListener("abort", stop);
    const done = this.ask("event", { type: "reply", ...request }, ({ event }) => onEvent(event));
    await done.finally(() => signal.removeEventListener("abort", stop));
  }

  inspect(request, onEvent) {
    return this.inTurn(async () => {
      await this.loadNow();
      const { seen } = await this.ask("seen", { type: "inspect", ...request }, onEvent);
      this.hasSeen = true;
      return seen;
    });
  }

  // Posts a message, and waits for the last answer of a type; `onMessage` is told of all.
  ask(type, message, onMessage = () => {}) {
    const { worker } = this;
    const isLast = (data) => data.type === type && (type !== "event" || data.event.finish);
    const answer = new Promise((resolve, reject) => {
      const fail = (key, values) => {
        if (BROKEN.includes(key) && type !== "seen") this.giveUp(); // Inspect has a session of its own
        reject(Object.assign(new Error(say(key, values)), { key }));
      };
      worker.onmessage = ({ data }) => {
        if (data.type === "error") return fail(data.key, data.values);
        onMessage(data);
        if (isLast(data)) resolve(data);
      };
      worker.onerror = ({ message: text }) => fail("worker.stopped", { text: text ?? "" });
      worker.postMessage(message);
    });
    // What else is under way is not wanted.
    return answer.finally(() => Object.assign(worker, { onmessage: null, onerror: null }));
  }

  // The next one is started when it is needed; without the GPU, which may be lost, as when the machine sleeps.
  giveUp() {
    this.worker.terminate();
    if (this.plan?.device === "webgpu") this.wish = "wasm";
    Object.assign(this, { worker: null, plan: null, isLoaded: false });
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
  const follow = ({ type, error, ...data }) => {
    for (const notice of view.notices) {
      if (type === "progress") notice.follow(data); // a person may go from one room to another
      else notice.tell("");
    }
    if (type === "ready") view.describe(line(data, site));
    if (type === "failed") view.stage.notice.tell(error.message, { undo: load, label: say("retry") });
  };
  const worked = new Worked(site, follow);
  const load = () => worked.load().catch(() => {}); // which `follow` tells of
  const ask = (...request) => worked.reply(...request);
  const inspect = site.inspect && ((...request) => worked.inspect(...request)); // no visitor can add its graph
  const planned = () => worked.inTurn(() => worked.planNow()).catch(() => ({ bytes: 0, inspect: 0 })); // `load` tells of it
  const isHere = async () => {
    const { bytes, inspect } = worked.plan ?? (await planned());
    return (worked.isLoaded ? 0 : bytes) + (worked.hasSeen ? 0 : inspect) < LARGE;
  };
  const view = await mount(document.getElementById("view"), { facts: site, ask, inspect, isHere });
  const { bytes } = await planned();
  if (bytes < LARGE) return load();
  const mb = (bytes / 1e6).toFixed(1);
  return view.stage.notice.tell(say("download.offer", { mb }), { undo: load, label: say("download"), isError: false });
}

main().catch((error) => {
  document.getElementById("view").textContent = error.message;
});
