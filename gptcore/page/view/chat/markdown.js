// A reply's Markdown as elements. HTML in a text is shown as text, no image is fetched, and what the
// libraries make passes a sanitiser. Code is coloured, and formulas are set, once their library is
// there; each is loaded when first needed.

import { Lexer, Marked } from "../vendor/marked.esm.js";
import DOMPurify from "../vendor/purify.es.js";
import { el, iconButton } from "../dom.js";
import { say } from "../words.js";

const TAGS =
  "a blockquote br code del em h1 h2 h3 h4 h5 h6 hr li ol p pre strong table tbody td th thead tr ul";
const CLEAN = {
  ALLOWED_TAGS: TAGS.split(" "),
  ALLOWED_ATTR: ["href", "start", "align", "class"],
  ALLOWED_URI_REGEXP: /^(https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};
const FORMULA = { maxSize: 20, maxExpand: 200, output: "mathml", throwOnError: false, trust: false };
const LONGEST_FORMULA = 2000; // characters
const LONGEST_CODE = 20_000; // characters that are coloured

const escaped = (text) =>
  text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

// $$...$$, \[...\], \(...\) and $...$; a price of $5 and another of $6 are no formula.
const formula = (name, level, pattern, start) => ({
  name,
  level,
  start: (text) => {
    const at = text.search(start);
    return at < 0 ? undefined : at;
  },
  tokenizer(text) {
    const match = pattern.exec(text);
    if (!match) return undefined;
    return { type: name, raw: match[0], text: match.slice(1).find((part) => part !== undefined) };
  },
  renderer: ({ text }) => `<code class="formula ${level}">${escaped(text)}</code>`,
});

const marked = new Marked({
  gfm: true,
  breaks: true, // people end a line where they mean it
  extensions: [
    formula("displayed", "block", /^(?:\$\$([^]+?)\$\$|\\\[([^]+?)\\\])(?:\n|$)/, /\$\$|\\\[/),
    formula(
      "inline",
      "inline",
      /^(?:\$\$([^$\n]+?)\$\$|\\\((.+?)\\\)|\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\d))/,
      /\$|\\\(/,
    ),
  ],
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => escaped(`${text} (${href})`),
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

// Shows a growing text in an element: only blocks that have changed are made anew.
export function showMarkdown(element, text) {
  const blocks = new Lexer(marked.defaults).lex(text);
  const { links } = blocks;
  const known = [...element.children];
  blocks.forEach((block, i) => {
    const old = known[i];
    if (old?.raw === block.raw) return;
    const made = drawn(block, links);
    made.raw = block.raw;
    if (old) old.replaceWith(made);
    else element.append(made);
  });
  known.slice(blocks.length).forEach((old) => old.remove());
}

function drawn(block, links) {
  if (block.type === "space") return el("span");
  const html = marked.parser(Object.assign([block], { links }));
  const box = el("div.block");
  box.append(DOMPurify.sanitize(html, CLEAN));
  for (const link of box.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const table of box.querySelectorAll("table")) {
    const frame = el("div.wide", { tabindex: "0", role: "region", "aria-label": say("table") });
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const code of box.querySelectorAll("pre > code")) decorate(code);
  for (const code of box.querySelectorAll("code.formula")) set(code);
  return box;
}

function decorate(code) {
  const name = /language-([\w+#-]+)/.exec(code.className)?.[1] ?? "";
  const copy = iconButton("copy", say("copy.code"), () => copyText(code.textContent, copy));
  const frame = el("div.code", {}, el("div.code-head", {}, name, copy));
  code.parentElement.replaceWith(frame);
  frame.append(el("pre", { tabindex: "0" }, code)); // it scrolls
  if (name && code.textContent.length <= LONGEST_CODE) colour(code, name);
}

async function colour(code, name) {
  const { default: highlighter } = await import("../vendor/highlight.min.js");
  if (!highlighter.getLanguage(name)) return;
  const { value } = highlighter.highlight(code.textContent, { language: name, ignoreIllegals: true });
  const allowed = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true };
  code.replaceChildren(DOMPurify.sanitize(value, allowed));
}

async function set(code) {
  if (code.textContent.length > LONGEST_FORMULA) return;
  await import("../vendor/katex.min.js"); // it sets a global name
  const displayMode = code.classList.contains("block");
  const html = self.katex.renderToString(code.textContent, { ...FORMULA, displayMode });
  const made = new DOMParser().parseFromString(html, "text/html").querySelector("math");
  if (!made) return; // an error: the formula's own words stay
  made.querySelectorAll("annotation").forEach((annotation) => annotation.remove());
  code.replaceWith(el(`span.math.${displayMode ? "block" : "inline"}`, {}, made));
}

// Copies a text and says so for a moment.
export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = el("textarea", {}, text); // over http other machines have no clipboard
    document.body.append(box);
    box.select();
    const isCopied = document.execCommand("copy");
    box.remove();
    button.focus({ preventScroll: true }); // which the box took
    if (!isCopied) return;
  }
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1200);
}
