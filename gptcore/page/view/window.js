// The view in a window of its own: a reply comes from gptcore/window/server.py as a stream of events.

import { events, post, readFacts, show } from "./host.js";
import { told } from "./words.js";

async function call(name, data, onEvent, signal) {
  for await (const event of events(await post(`ask/${name}`, data, signal))) {
    if ("error" in event) throw new Error(told(event.error));
    onEvent(event);
  }
}

// The window shows this page alone: what leads elsewhere opens in the system's browser.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || link.origin === location.origin || link.protocol === "blob:") return;
  event.preventDefault();
  post("open", link.href).catch(() => {});
});

await show(await readFacts(), call);
