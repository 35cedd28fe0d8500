// The view in the Gradio page: a reply comes through Gradio's own queue.

import { randomId } from "./kept/tree.js";
import { mount } from "./view.js";
import { say, told } from "./words.js";

const URL_OF = (path) => new URL(path, document.baseURI).href;
const headers = { "Content-Type": "application/json" };

async function post(path, body) {
  try {
    return await fetch(URL_OF(path), { method: "POST", headers, body: JSON.stringify(body) });
  } catch {
    throw new Error(say("lost.server"));
  }
}

// Calls an endpoint, and hands on its events. Gradio opens one stream of events for a session; each
// question is a session of its own.
async function call(fn_index, data, onEvent, signal = new AbortController().signal) {
  const session_hash = randomId();
  const joined = await post("gradio_api/queue/join", { data, fn_index, session_hash });
  const { event_id, detail } = await joined.json().catch(() => ({}));
  if (!joined.ok) throw new Error(typeof detail === "string" ? told(detail) : say("lost.server"));
  const cancel = () => post("gradio_api/cancel", { fn_index, session_hash, event_id }).catch(() => {});
  signal.addEventListener("abort", cancel);
  try {
    const stream = await fetch(URL_OF(`gradio_api/queue/data?session_hash=${session_hash}`), { signal });
    for await (const message of events(stream.body)) {
      if (message.msg === "estimation") onEvent({ waiting: message.rank });
      if (message.msg === "process_generating") onEvent(JSON.parse(output(message)));
      if (message.msg === "process_completed") {
        if (message.success === false) throw new Error(told(message.output.error ?? say("lost.stream")));
        return;
      }
    }
    throw new Error(say("lost.stream"));
  } catch (error) {
    if (error instanceof TypeError) throw new Error(say("lost.stream")); // the network's
    throw error;
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

// Calls an endpoint that gives one value, whose arrays come as float32 in base64.
async function look(fn_index, data, onEvent) {
  let found;
  await call(fn_index, data, (event) => (event.arrays ? (found = event) : onEvent?.(event)));
  for (const array of Object.values(found.arrays))
    array.data = new Float32Array(Uint8Array.from(atob(array.data), (c) => c.charCodeAt(0)).buffer);
  return found;
}

// The first output of a reply comes whole; then come differences, each of which replaces it.
function output({ output: { data } }) {
  const [value] = data;
  return typeof value === "string" ? value : value.at(-1).at(-1);
}

// Yields the JSON of server-sent events.
async function* events(body) {
  let rest = "";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data:")) yield JSON.parse(part.slice(5));
  }
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

async function show() {
  // The model that the address names; without one, the first that the server has.
  const chosen = new URLSearchParams(location.search).get("model");
  const query = chosen === null ? "" : `?${new URLSearchParams({ model: chosen })}`;
  const facts = await (await fetch(URL_OF(`view/facts.json${query}`))).json();
  const { events: numbers, translator } = facts;
  // Beside Gradio's container, which has nothing to show.
  const place = document.body.appendChild(document.createElement("div"));
  await mount(place, {
    facts,
    ask: ({ prompt, settings, begun, model = facts.name }, ...more) =>
      call(numbers.reply, [prompt, settings, begun, model], ...more),
    inspect: ({ what, layer, model = facts.name, untrained }, onEvent) => look(numbers.inspect, [what, layer, model, untrained], onEvent),
    translator: translator && {
      facts: translator,
      translate: ({ text, beams }, ...more) => call(numbers.translation, [text, beams], ...more),
      crossing: ({ source, target }) => look(numbers.crossing, [source, target]),
    },
    train: facts.train && {
      state: () => train("state"),
      put: (file) => train(`texts/${encodeURIComponent(file.name)}`, { method: "PUT", body: file }),
      act: (action, values) => train(action, { method: "POST", headers, body: JSON.stringify(values) }),
    },
  });
}

// Gradio's own page describes the API; it opens by a press on its button alone.
function showApi() {
  document.body.classList.add("api");
  const press = () => {
    if (document.querySelector(".api-docs")) clearInterval(timer);
    else document.querySelector("button.show-api")?.click();
  };
  const timer = setInterval(press, 500);
}

if (new URLSearchParams(location.search).get("view") === "api") showApi();
else await show();
