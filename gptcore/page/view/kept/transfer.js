// Chats as files: JSON, from which they come back whole, and Markdown, for people.

import { VERSION, beginning, merge, path, titleOf, touch } from "./tree.js";

export const LARGEST = 50e6; // bytes of a file that is read
const KIND = "gptcore chats";

// Yields the texts of JSON files with chats and the tokens of their replies: one, or as many as it
// takes that each can be read again. A chat that is too large with its tokens goes without them, and
// a damaged one is left out, as no import would take it: its id is added to `left`.
export async function* asJson(store, ids, left, largest = LARGEST) {
  const sizeOf = (text) => new Blob([text]).size + 1;
  const whole = (chats) => `{"kind":"${KIND}","version":${VERSION},"chats":[${chats.join(",")}]}`;
  let chats = [];
  let size = 1000; // bytes of the frame, and more
  for (const id of ids) {
    const entry = await withTokens(store, id);
    if (!entry) {
      left.push(id);
      continue;
    }
    let text = JSON.stringify(entry);
    if (1000 + sizeOf(text) > largest) text = JSON.stringify({ ...entry, tokens: {} });
    const bytes = sizeOf(text);
    if (chats.length && size + bytes > largest) {
      yield whole(chats);
      [chats, size] = [[], 1000];
    }
    chats.push(text);
    size += bytes;
  }
  if (chats.length) yield whole(chats);
}

async function withTokens(store, id) {
  const chat = await store.load(id);
  if (!isChat(chat)) return null;
  const tokens = {};
  for (const node of Object.keys(chat.nodes)) {
    const found = await store.loadTokens(id, node);
    if (found) tokens[node] = found;
  }
  return { chat, tokens };
}

export function asMarkdown(chat, say) {
  const turns = path(chat).map(({ role, text }) => `**${say(`role.${role}`)}**\n\n${text}\n`);
  const system = chat.system && `*${say("system")}: ${chat.system}*\n`;
  return [`# ${titleOf(chat) || say("chat.untitled")}\n`, system, ...turns].filter(Boolean).join("\n");
}

// Keeps the chats of a JSON file; returns their number. Throws an error with the key of its text.
export async function importJson(store, file) {
  if (file.size > LARGEST) throw new Error("import.large");
  let content;
  try {
    content = JSON.parse(await file.text());
  } catch {
    throw new Error("import.nonsense");
  }
  if (content?.kind !== KIND || !Array.isArray(content.chats)) throw new Error("import.nonsense");
  if (content.version !== VERSION) throw new Error("import.version");
  if (!content.chats.every((entry) => isChat(entry?.chat) && isKnown(entry.tokens ?? {}))) throw new Error("import.damaged");
  for (const { chat, tokens } of content.chats) {
    const kept = await store.load(chat.id);
    // Its messages come back, those that were deleted here too.
    await store.save(kept ? touch(merge({ ...kept, gone: [] }, chat)) : chat, tokens ?? {});
  }
  return content.chats.length;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isText = (value) => typeof value === "string";

// Returns whether a value has all that the view reads of a chat.
export function isChat(chat) {
  return (
    isObject(chat) &&
    chat.version === VERSION &&
    [chat.id, chat.title, chat.system].every(isText) &&
    [chat.created, chat.changed].every(Number.isFinite) &&
    [chat.nodes, chat.chosen, chat.settings].every(isObject) &&
    Object.entries(chat.settings).every(isSetting) &&
    Array.isArray(chat.gone) &&
    Object.entries(chat.nodes).every(
      ([id, node]) =>
        isObject(node) &&
        node.id === id &&
        [node.parent, node.text, node.model ?? "", node.finish ?? ""].every(isText) &&
        ["user", "assistant"].includes(node.role) &&
        Number.isFinite(node.created),
    )
  );
}

function isSetting([name, value]) {
  if (name === "stop") return Array.isArray(value) && value.every(isText);
  return name === "schema" ? isText(value) : Number.isFinite(value);
}

// Returns whether a value has what the view reads of the tokens of replies, by the id of the message.
function isKnown(tokens) {
  const isToken = (token) => Array.isArray(token) && isText(token[1]);
  const isRow = (row) => Array.isArray(row) && row.every(isToken);
  return isObject(tokens) && Object.values(tokens).every((known) => isRow(known?.tokens) && isRow(known.prompt ?? []));
}

// Offers a text as a file to be saved; `ending` is that of its name.
export function download(name, ending, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = beginning(name.replace(/[^\p{L}\p{N}._ -]+/gu, "_"), 80) + ending;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
