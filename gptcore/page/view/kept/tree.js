// A chat as a tree: a message knows the one before it, and each fork which way is shown. Another
// version of a reply, or of one's own words, is another child of the same message; nothing is lost.

export const ROOT = "root";
export const VERSION = 1; // of a kept chat; an older or a newer one is refused by name
const MOST_BYTES = 1_000_000; // of the messages in a request

export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12)); // randomUUID needs https
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newChat({ system = "", settings = {}, model = null } = {}) {
  const now = Date.now();
  return {
    version: VERSION,
    id: randomId(),
    title: "",
    created: now,
    changed: now,
    set: now,
    model,
    system,
    settings,
    // By id: {id, parent, role, text, created}; of a reply also what reply.js knows of it: its model,
    // and of that the tokenizer; seed, figures and finish; of a comparison, its pair.
    nodes: {},
    chosen: {}, // by parent: the child that is shown
    gone: [], // ids of deleted messages, which another tab may still hold
  };
}

export function children(chat, parent) {
  const found = Object.values(chat.nodes).filter((node) => node.parent === parent);
  return found.sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}

// Makes this copy of a chat newer than it was, though a clock may be set back; returns it.
export function touch(chat) {
  return Object.assign(chat, { changed: Math.max(Date.now(), chat.changed + 1) });
}

// Sets title, model, rival, system prompt or settings of a chat; returns it.
export function set(chat, changes) {
  Object.assign(chat, changes);
  return Object.assign(touch(chat), { set: chat.changed });
}

// Returns the messages that are shown, the first one first.
export function path(chat) {
  const shown = new Map(); // by parent: the chosen child, or else the newest
  for (const node of Object.values(chat.nodes)) {
    const chosen = chat.chosen[node.parent];
    const best = shown.get(node.parent);
    const isBetter = !best || (best.id !== chosen && best.created < node.created);
    if (node.id === chosen || isBetter) shown.set(node.parent, node);
  }
  const found = [];
  for (let at = shown.get(ROOT); at && found.length <= shown.size; at = shown.get(at.id)) found.push(at);
  return found;
}

// Adds a message after `parent` and shows it.
export function add(chat, parent, message) {
  const last = Math.max(0, ...children(chat, parent).map((node) => node.created));
  const created = Math.max(Date.now(), last + 1); // versions stand in the order of their making
  const node = { id: randomId(), parent, created, instead: chat.chosen[parent], ...message };
  chat.nodes[node.id] = node;
  chat.chosen[parent] = node.id;
  touch(chat);
  return node;
}

// Returns which of how many versions a message is, counted from 1.
export function versionOf(chat, node) {
  const all = children(chat, node.parent);
  return { number: all.findIndex(({ id }) => id === node.id) + 1, count: all.length };
}

// Returns the replies of several models that were asked for together, in the order of their making.
export function pairOf(chat, node) {
  const isPair = (other) => node.pair && other.pair === node.pair;
  return children(chat, node.parent).filter(isPair);
}

// Shows the version that is `step` places after this one, if there is one.
export function turn(chat, node, step) {
  const all = children(chat, node.parent);
  const next = all[all.findIndex(({ id }) => id === node.id) + step];
  if (next) chat.chosen[node.parent] = next.id;
  touch(chat);
}

// Returns the ids of a message and of all that follows from it.
export function below(chat, node) {
  const ids = [node.id];
  for (let i = 0; i < ids.length; i += 1)
    ids.push(...children(chat, ids[i]).map((child) => child.id));
  return ids;
}

// Deletes a message with all that follows from it; returns a function that brings them back
// into the chat, or into a later copy of it, and shows them.
export function remove(chat, node) {
  const before = { nodes: { ...chat.nodes }, chosen: { ...chat.chosen } };
  const ids = below(chat, node);
  for (const id of ids) {
    delete chat.nodes[id];
    delete chat.chosen[id];
  }
  // What it was shown instead of is shown again.
  if (chat.chosen[node.parent] === node.id) chat.chosen[node.parent] = node.instead;
  chat.gone.push(...ids);
  touch(chat);
  return (later = chat) => {
    for (const id of ids) later.nodes[id] = before.nodes[id];
    for (const id of [node.parent, ...ids]) if (ids.includes(before.chosen[id])) later.chosen[id] = before.chosen[id];
    later.gone = later.gone.filter((id) => !ids.includes(id));
    return touch(later);
  };
}

// Joins what two tabs know of one chat: all messages of both, the choices of the newer one, and what
// was set last, by a tab that may have written nothing since. A text only grows: the longer one of a
// message is whole, the other a copy of when it was written.
export function merge(one, other) {
  const [older, newer] = one.changed <= other.changed ? [one, other] : [other, one];
  const gone = new Set([...older.gone, ...newer.gone].filter((id) => !(id in newer.nodes)));
  const nodes = { ...older.nodes, ...newer.nodes };
  for (const node of Object.values(older.nodes))
    if (nodes[node.id].text.length < node.text.length) nodes[node.id] = node;
  for (const id of gone) delete nodes[id];
  for (const node of Object.values(nodes))
    if (node.parent !== ROOT && !(node.parent in nodes)) delete nodes[node.id];
  const chosen = { ...older.chosen, ...newer.chosen };
  return { ...older, ...newer, ...lastSet(older, newer), nodes, chosen, gone: [...gone] };
}

// Returns what `set` has set, of the one of two states of a chat in which it was set last.
export function lastSet(older, newer) {
  const { title, model, rival, system, settings, set } = (older.set ?? 0) > (newer.set ?? 0) ? older : newer;
  return { title, model, rival, system, settings, set };
}

// Returns the system prompt and the newest messages, as many as a request may take: a server refuses
// more than 1 MiB, and no model reads as much.
export function newest(system, nodes) {
  const bytes = (message) => new TextEncoder().encode(JSON.stringify(message)).length;
  const first = system.trim() ? [{ role: "system", content: system }] : [];
  const found = [];
  let n_bytes = first.reduce((sum, message) => sum + bytes(message), 0);
  for (const { role, text } of [...nodes].reverse()) {
    const message = { role, content: text };
    n_bytes += bytes(message);
    if (found.length && n_bytes > MOST_BYTES) break;
    found.push(message);
  }
  return [...first, ...found.reverse()];
}

// Returns the first letters of a text; an emoji, which takes two places of a string, is one.
export const beginning = (text, n) => [...text].slice(0, n).join("");

// Returns the beginning of the first message, for the list of chats.
export function titleOf(chat) {
  const first = path(chat).find((node) => node.role === "user")?.text ?? "";
  return chat.title || beginning(first.trim().replace(/\s+/g, " "), 60);
}
