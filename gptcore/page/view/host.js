// The view as a server serves it: what the Gradio page and a window of its own share. They differ in
// `call`, which asks for something by its name and values, and hands on the events of the answer:
//
//     show(facts, call)
//     await call("reply", [prompt, settings, begun, model], onEvent, signal)

import { mount } from "./view.js";
import { say, told } from "./words.js";

const URL_OF = (path) => new URL(path, document.baseURI).href;
const headers = { "Content-Type": "application/json" };

// Returns the server's response; throws an error that a person can read if it refuses, or is not there.
export async function get(path, request = {}) {
  const response = await fetch(URL_OF(path), request).catch(() => {
    throw new Error(say("lost.server"));
  });
  if (response.ok) return response;
  const { detail } = await response.json().catch(() => ({}));
  throw new Error(typeof detail === "string" ? told(detail) : say("lost.server"));
}

// The same for JSON that is sent.
export function post(path, body, signal) {
  return get(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

// Yields the JSON of the server-sent events of a response.
export async function* events(response) {
  let rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read().catch(() => {
      throw new Error(say("lost.stream"));
    });
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data:")) yield JSON.parse(part.slice(5));
  }
}

// Returns the facts of the model that the address names; without one, of the server's first.
export async function readFacts() {
  const chosen = new URLSearchParams(location.search).get("model");
  const query = chosen === null ? "" : `?${new URLSearchParams({ model: chosen })}`;
  return (await get(`view/facts.json${query}`)).json();
}

export async function show(facts, call) {
  // Asks for one value, whose arrays come as float32 in base64.
  const look = async (name, data, onEvent) => {
    let found;
    await call(name, data, (event) => (event.arrays ? (found = event) : onEvent?.(event)));
    for (const array of Object.values(found.arrays))
      array.data = new Float32Array(Uint8Array.from(atob(array.data), (c) => c.charCodeAt(0)).buffer);
    return found;
  };
  const { translator } = facts;
  await mount(document.body.appendChild(document.createElement("div")), {
    facts,
    ask: ({ prompt, settings, begun, model = facts.name }, ...more) =>
      call("reply", [prompt, settings, begun, model], ...more),
    inspect: ({ what, layer, model = facts.name, untrained }, onEvent) => look("inspect", [what, layer, model, untrained], onEvent),
    models: async () => {
      const { models, others } = await readFacts(); // those that are here now, also for a language switch
      return Object.assign(facts, { models, others });
    },
    translator: translator && {
      facts: translator,
      translate: ({ text, beams }, ...more) => call("translation", [text, beams], ...more),
      crossing: ({ source, target }) => look("crossing", [source, target]),
    },
    train: facts.train && {
      state: async () => (await get("train/state")).json(), // see gptcore/page/train/routes.py
      put: async (file) => (await get(`train/texts/${encodeURIComponent(file.name)}`, { method: "PUT", body: file })).json(),
      act: async (action, values) => (await post(`train/${action}`, values)).json(),
    },
  });
}
