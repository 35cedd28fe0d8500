// The view in a window of its own: a reply comes from gptcore/window/server.py as a stream of events.

import { events, post, readFacts, readable, show } from "./host.js";
import { say, told } from "./words.js";

async function call(name, data, onEvent, signal) {
  try {
    const response = await post(`ask/${name}`, data, signal);
    if (!response.ok) throw new Error(await reason(response));
    for await (const event of events(response)) {
      if ("error" in event) throw new Error(told(event.error));
      onEvent(event);
    }
  } catch (error) {
    throw readable(error);
  }
}

async function reason(response) {
  const { detail } = await response.json().catch(() => ({}));
  return detail ? told(detail) : say("lost.server");
}

// The window shows this page alone: what leads elsewhere opens in the system's browser.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || link.origin === location.origin || link.protocol === "blob:") return;
  event.preventDefault();
  post("open", link.href).catch(() => {});
});

await show(await readFacts(), call);
