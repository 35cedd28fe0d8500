// The words of the page in a person's language. A language is one file in words/.

import { keep, recall } from "./kept/values.js";
import en from "./words/en.js";
import zh from "./words/zh.js";

export const LANGUAGES = { en, zh };
const KEY = "gptcore-language";

export function language() {
  const wanted = [recall(KEY), ...navigator.languages].filter(Boolean);
  return wanted.map((name) => name.slice(0, 2)).find((name) => name in LANGUAGES) ?? "en";
}

export const chooseLanguage = (name) => keep(KEY, name);

// Returns a text with its {values}; a number chooses between "one|many".
export function say(key, values = {}) {
  const text = LANGUAGES[language()][key] ?? en[key] ?? key;
  const [one, many = one] = text.split("|");
  return (values.n === 1 ? one : many).replace(/\{(\w+)\}/g, (_, name) => {
    const value = values[name];
    return typeof value === "number" ? value.toLocaleString(language()) : String(value ?? "");
  });
}

// Returns a model's name for people; NAME@FORMAT is one of its number formats.
export const shownName = (name) => name.replace("@", " · ");

const escaped = (text) => text.replace(/[.*+?^$()[\]\\|]/g, "\\$&");

// Returns a message of the server in the person's language, or as it is if it has no words here.
export function told(message) {
  for (const key of Object.keys(en).filter((name) => name.startsWith("told."))) {
    for (const text of en[key].split("|")) {
      const pattern = escaped(text).replace(/\{(\w+)\}/g, "(?<$1>.+?)");
      const found = new RegExp(`^${pattern}$`, "i").exec(message);
      if (!found) continue;
      const { n, told: inner, ...values } = found.groups ?? {};
      return say(key, { ...values, ...(n && { n: Number(n) }), ...(inner && { told: told(inner) }) });
    }
  }
  return message;
}
