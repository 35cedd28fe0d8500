// The view in the Gradio page: a reply comes through Gradio's own queue.

import { events, get, post, readFacts, show } from "./host.js";
import { randomId } from "./kept/tree.js";
import { say, told } from "./words.js";

// Calls an endpoint, and hands on its events. Gradio opens one stream of events for a session; each
// question is a session of its own.
async function call(fn_index, data, onEvent, signal = new AbortController().signal) {
  const session_hash = randomId();
  const joined = await post("gradio_api/queue/join", { data, fn_index, session_hash });
  const { event_id } = await joined.json();
  const cancel = () => post("gradio_api/cancel", { fn_index, session_hash, event_id }).catch(() => {});
  signal.addEventListener("abort", cancel);
  if (signal.aborted) cancel(); // meanwhile
  try {
    for await (const message of events(await get(`gradio_api/queue/data?session_hash=${session_hash}`, { signal }))) {
      if (message.msg === "estimation") onEvent({ waiting: message.rank });
      if (message.msg === "process_generating") onEvent(JSON.parse(output(message)));
      if (message.msg === "process_completed") {
        if (message.success === false) throw new Error(told(message.output.error ?? say("lost.stream")));
        return;
      }
    }
    throw new Error(say("lost.stream"));
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

// The first output of a reply comes whole; then come differences, each of which replaces it.
function output({ output: { data } }) {
  const [value] = data;
  return typeof value === "string" ? value : value.at(-1).at(-1);
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
else {
  const facts = await readFacts();
  await show(facts, (name, ...more) => call(facts.events[name], ...more));
}
