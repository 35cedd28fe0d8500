// The view as a server serves it: what the Gradio page and a window of its own share. They differ in
// `call`, which asks for something by its name and values, and hands on the events of the answer:
//
//     show(facts, call)
//     await call("reply", [prompt, settings, begun, model], onEvent, signal)

import { mount } from "./view.js";
import { say } from "./words.js";

const URL_OF = (path) => new URL(path, document.baseURI).href;
const headers = { "Content-Type": "application/json" };

// Sends JSON; returns the server's response, whatever its status.
export async function post(path, body, signal) {
  try {
    return await fetch(URL_OF(path), { method: "POST", headers, body: JSON.stringify(body), signal });
  } catch {
    throw new Error(say("lost.server"));
  }
}

export function get(path, signal) {
  return fetch(URL_OF(path), { signal });
}

// Yields the JSON of the server-sent events of a response.
export async function* events(response) {
  let rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data:")) yield JSON.parse(part.slice(5));
  }
}

// Returns the error that a person can read for one of `fetch` or of a stream.
export function readable(error) {
  return error instanceof TypeError ? new Error(say("lost.stream")) : error; // the network's
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
    models: readFacts, // those that are here now
    translator: translator && {
      facts: translator,
      translate: ({ text, beams }, ...more) => call("translation", [text, beams], ...more),
      crossing: ({ source, target }) => look("crossing", [source, target]),
    },
    train: facts.train && {
      state: () => train("state"),
      put: (file) => train(`texts/${encodeURIComponent(file.name)}`, { method: "PUT", body: file }),
      act: (action, values) => train(action, { method: "POST", headers, body: JSON.stringify(values) }),
    },
  });
}

// Asks one of Train's addresses; see gptcore/page/train/routes.py.
async function train(path, request = {}) {
  const answer = await fetch(URL_OF(`train/${path}`), request).catch(() => {
    throw new Error(say("lost.server"));
  });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(content.detail ?? say("lost.server"));
  return content;
}
