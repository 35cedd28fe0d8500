// A reply that is being written: asked for, shown as it grows, kept now and then and when it ends.

import { whole } from "../parts/glass.js";
import { remove, touch } from "../kept/tree.js";

const KEEP_MILLISECONDS = 2000; // a reply that is being written is kept this often
const TITLE_SECONDS = 10; // a reply that took longer is told in the window's title

// `chat`: the Conversation; `node`: the reply's message; `begun`: its first token ids, or its text;
// `changes`: of the settings. Returns how the reply ended, when it is kept.
export async function writeReply(chat, node, begun, changes) {
  const { chat: kept } = chat;
  if (!chat.models.has(node.model)) node.model = chat.facts.name; // the model that began it is gone
  const n_before = chat.nodes().indexOf(node);
  const prompt = chat.what(n_before);
  const n_left = n_before - prompt.filter(({ role }) => role !== "system").length; // out, as too many
  const before = chat.known.get(node.id)?.tokens ?? []; // of what is begun, with their probabilities
  const known = { tokens: [], prompt: null, n_dropped: 0 };
  node.tokenizer = chat.models.get(node.model).tokenizer; // whose ids its tokens are
  const already = node.text; // stays if nothing comes
  for (const [id, { isKept }] of chat.known) if (isKept) chat.known.delete(id); // it takes much memory
  chat.known.set(node.id, known);
  chat.setWriting(new AbortController());
  const ended = announceWriting(node.id);
  const { signal } = chat.writing;
  chat.notice.tell("");
  delete node.finish;
  chat.refresh();
  chat.save(touch(kept)); // what was asked outlives a reload
  chat.messages.grow(node);
  chat.messages.toEnd();
  const started = performance.now();
  let keptAt = started;
  const onEvent = (event) => {
    if (!(node.id in kept.nodes)) return chat.stop(); // another tab has deleted it
    chat.notice.follow(event);
    take(event, node, known, { n_left, before });
    if (event.line) chat.describe(node.model, event.line);
    chat.messages.grow(node);
    if (chat.chat === kept) chat.measure(node); // or another one is open, and this one about to stop
    if (performance.now() - keptAt > KEEP_MILLISECONDS) {
      keptAt = performance.now();
      chat.store.save(kept).catch(() => {}); // the last one tells of it
    }
  };
  let failure = "";
  try {
    const settings = { ...chat.settings.values(), ...changes };
    await chat.host.ask({ prompt, settings, begun, model: node.model }, onEvent, signal);
  } catch (error) {
    failure = error.message;
  }
  node.finish ??= signal.aborted ? "stopped" : "broken";
  chat.setWriting(undefined);
  const told = failure && !signal.aborted ? failure : "";
  await keep(chat, kept, node, { known, failure: told, already });
  ended();
  announce(performance.now() - started);
  return node.finish;
}

const LOCK = "gptcore-reply-"; // and the id of a reply that is being written

// Lets other tabs know that a reply is being written; returns what ends it, as a closed tab does.
function announceWriting(id) {
  let end;
  const ended = new Promise((resolve) => (end = resolve));
  navigator.locks?.request(LOCK + id, () => ended).catch(() => {}); // only where the address is safe
  return end;
}

// Returns the ids of the replies that are being written, in any tab.
export async function beingWritten() {
  const { held } = (await navigator.locks?.query()) ?? { held: [] };
  return new Set(held.map(({ name }) => name.replace(LOCK, "")));
}

// Keeps a reply that has ended. One that did not begin is taken back, with the message before it.
async function keep(chat, kept, node, { known, failure, already }) {
  if (!node.text && failure) {
    const asked = kept.nodes[node.parent];
    remove(kept, node);
    const isNew = asked && !Object.values(kept.nodes).some((other) => other.parent === asked.id);
    if (isNew && chat.chat === kept && !chat.composer.box.value) {
      remove(kept, asked);
      chat.composer.set(asked.text);
    }
  } else if (!known.tokens.length && already) {
    node.text ||= already;
  }
  if (chat.chat === kept) {
    chat.messages.drawn.delete(node.id);
    chat.refresh();
    chat.composer.invite();
  }
  if (!known.prompt) chat.known.delete(node.id); // of a try that failed, what was known before stays
  if (failure && !kept.title && !Object.keys(kept.nodes).length) await chat.forget(kept); // its first message
  else known.isKept = await chat.save(touch(kept), known.tokens.length ? { [node.id]: known } : {});
  if (failure) chat.notice.tell(failure);
}

function announce(milliseconds) {
  const { title } = document;
  if (!document.hidden || milliseconds < 1000 * TITLE_SECONDS || title.startsWith("✓ ")) return;
  document.title = `✓ ${title}`;
  document.addEventListener("visibilitychange", () => (document.title = title), { once: true });
}

// Adds an event of a reply to its message, and to what is known of it; `n_left`: the messages that
// were not sent, of which the server knows nothing; `before`: tokens that were known already.
function take(event, node, known, { n_left, before }) {
  if (event.prompt) {
    const n_dropped = n_left + event.n_dropped;
    const tokens = event.tokens.map((token, i) => (before[i]?.[0] === token[0] ? before[i] : token));
    Object.assign(known, { prompt: event.prompt, n_dropped, tokens });
    Object.assign(node, { text: event.begun, prompt: true, n_dropped, seed: event.seed });
  } else if (event.tokens) {
    known.tokens.push(...event.tokens);
    node.text += event.text;
    const { n_prompt, n_new, first_ms, speed } = event;
    Object.assign(node, { n_prompt, n_new, first_ms, speed });
    if (event.finish) node.finish = event.finish;
    node.text = whole(node.text, event.finish);
  }
}
