// Chats, kept in the browser's IndexedDB, or for this visit alone where the browser forbids it.
// Three tables: heads (what the list shows), chats, and tokens (of replies; large, rarely needed).

import { merge, titleOf } from "./tree.js";

const NAME = "gptcore-chats";
const TABLES = ["heads", "chats", "tokens"];

export async function openStore() {
  try {
    return new Store(await openDatabase());
  } catch {
    return new VisitStore();
  }
}

function openDatabase() {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(NAME, 1);
    opening.onupgradeneeded = () => {
      for (const table of TABLES) opening.result.createObjectStore(table);
    };
    opening.onsuccess = () => {
      opening.result.onversionchange = () => opening.result.close();
      resolve(opening.result);
    };
    opening.onerror = () => reject(opening.error);
    opening.onblocked = () => reject(new Error("another version of this page is open"));
  });
}

function done(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error); // which follows each error
  });
}

function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

// Returns the key of the words for an error of the browser's storage; `otherwise` is of those that are
// not about its room.
export const lost = (error, otherwise = "store.lost") => (error?.name === "QuotaExceededError" ? "store.full" : otherwise);

const headOf = ({ id, created, changed }, title) => ({ id, created, changed, title });
const newestFirst = (heads) => heads.sort((a, b) => b.changed - a.changed);
const tokenKey = (chat, node) => `${chat}/${node}`;
const keysOf = (id) => IDBKeyRange.bound(`${id}/`, `${id}/\uffff`);

class Store {
  isKept = true;

  constructor(database) {
    this.database = database;
    this.others = new BroadcastChannel(NAME);
    this.others.onmessage = ({ data }) => this.onChange?.(data);
  }

  // Calls `listener` with the id of a chat that another tab has changed or deleted; null: deleted all.
  listen(listener) {
    this.onChange = listener;
  }

  // An iPhone closes the database of a page that was long in the background (WebKit bug 277615).
  async begin(tables, mode) {
    try {
      return this.database.transaction(tables, mode);
    } catch {
      this.database = await openDatabase();
      return this.database.transaction(tables, mode);
    }
  }

  async read(table, call) {
    const transaction = await this.begin(table, "readonly");
    return result(call(transaction.objectStore(table)));
  }

  async list() {
    return newestFirst(await this.read("heads", (heads) => heads.getAll()));
  }

  load(id) {
    return this.read("chats", (chats) => chats.get(id));
  }

  loadTokens(id, node) {
    return this.read("tokens", (tokens) => tokens.get(tokenKey(id, node)));
  }

  // Keeps a chat, joined with what another tab has kept of it; returns what is kept. `tokens` are
  // those of new replies, by the id of the message; those of messages that are gone go, too.
  async save(chat, tokens = {}) {
    const transaction = await this.begin(TABLES, "readwrite");
    const [heads, chats, table] = TABLES.map((name) => transaction.objectStore(name));
    let kept = chat;
    chats.get(chat.id).onsuccess = ({ target }) => {
      kept = target.result ? merge(target.result, chat) : chat;
      chats.put(kept, chat.id);
      heads.put(headOf(kept, titleOf(kept)), chat.id);
      for (const [node, value] of Object.entries(tokens)) table.put(value, tokenKey(chat.id, node));
      for (const node of kept.gone) table.delete(tokenKey(chat.id, node));
    };
    await done(transaction);
    this.others.postMessage(chat.id);
    return kept;
  }

  // Deletes a chat; returns a function that brings it back.
  async remove(id) {
    const chat = await this.load(id);
    const [keys, values] = await Promise.all([
      this.read("tokens", (tokens) => tokens.getAllKeys(keysOf(id))),
      this.read("tokens", (tokens) => tokens.getAll(keysOf(id))),
    ]);
    const transaction = await this.begin(TABLES, "readwrite");
    for (const table of ["heads", "chats"]) transaction.objectStore(table).delete(id);
    transaction.objectStore("tokens").delete(keysOf(id));
    await done(transaction);
    this.others.postMessage(id);
    const byNode = keys.map((key, i) => [key.slice(id.length + 1), values[i]]);
    return () => this.save(chat, Object.fromEntries(byNode));
  }

  async clear() {
    const transaction = await this.begin(TABLES, "readwrite");
    for (const table of TABLES) transaction.objectStore(table).clear();
    await done(transaction);
    this.others.postMessage(null);
  }
}

// The same for one visit.
class VisitStore {
  isKept = false;
  chats = new Map();
  tokens = new Map();

  listen() {}

  async list() {
    return newestFirst([...this.chats.values()].map((chat) => headOf(chat, titleOf(chat))));
  }

  async load(id) {
    return structuredClone(this.chats.get(id));
  }

  async loadTokens(id, node) {
    return this.tokens.get(tokenKey(id, node));
  }

  async save(chat, tokens = {}) {
    this.chats.set(chat.id, structuredClone(chat));
    for (const [node, value] of Object.entries(tokens)) this.tokens.set(tokenKey(chat.id, node), value);
    for (const node of chat.gone) this.tokens.delete(tokenKey(chat.id, node));
    return chat;
  }

  async remove(id) {
    const chat = this.chats.get(id);
    this.chats.delete(id);
    const found = [...this.tokens].filter(([key]) => key.startsWith(`${id}/`));
    for (const [key] of found) this.tokens.delete(key);
    return () => this.save(chat, Object.fromEntries(found.map(([key, value]) => [key.slice(id.length + 1), value])));
  }

  async clear() {
    this.chats.clear();
    this.tokens.clear();
  }
}
