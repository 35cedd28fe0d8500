// The glass box: a reply's tokens tinted by how likely each was, with what the model might have
// written instead. A click on an alternative branches the reply there.

import { el } from "../dom.js";
import { say } from "../words.js";

const percent = (logprob) => {
  const share = 100 * Math.exp(logprob);
  if (share < 0.01) return "< 0.01 %";
  return share >= 99.95 ? "100 %" : `${share >= 10 ? share.toFixed(0) : share.toPrecision(2)} %`;
};

export const visible = (text) => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";

export const textOf = (tokens) => tokens.map(([, text]) => text).join("");

// Returns a text without the mark that stands for a character cut in two by the end of a reply: who
// goes on with the reply completes it.
export const whole = (text, finish) => (finish && finish !== "end" ? text.replace(/\ufffd$/, "") : text);

const levelOf = (logprob) => Math.min(4, Math.floor(-logprob / 0.7)); // 0: as good as certain

// What the colours mean.
export function tintLegend() {
  const steps = [0, 1, 2, 3, 4].map((level) => el(`span.step.tint-${level}`));
  return el("p.legend", { hidden: true }, say("tint.likely"), ...steps, say("tint.unlikely"));
}

// A button for a token that the model might write, and how likely it is.
export function likely(name, logprob, attributes, kind = "") {
  const bar = el("span.bar-fill");
  bar.style.width = `${Math.max(1, 100 * Math.exp(logprob))}%`;
  const share = el("span.share", {}, percent(logprob));
  return el(`button.alternative${kind}`, { type: "button", ...attributes }, el("code", {}, name), share, bar);
}

// Shows tokens in an element, tinted alone.
export function showTints(element, tokens) {
  const spans = tokens.map(([, text, logprob]) => el(`span.tint-${levelOf(logprob)}`, {}, text));
  element.replaceChildren(...spans);
}

// Shows tokens in an element, which are those of gptcore/page/reply.py.
export function showTokens(element, tokens, branch) {
  const spans = tokens.map((token, i) => {
    const [, text, logprob, top] = token;
    if (logprob === null) return el("span.token.begun", { title: say("token.begun") }, text);
    const role = { role: "button", "aria-haspopup": "dialog", tabindex: "-1", "aria-label": visible(text).trim() || "␣" };
    const span = el(`span.token.tint-${levelOf(logprob)}`, { "data-i": String(i), ...role }, text);
    span.alternatives = top;
    return span;
  });
  element.replaceChildren(...spans);
  const choices = spans.filter((span) => span.alternatives);
  if (choices.length) choices[0].tabIndex = 0; // the others are reached from it, by arrows
  element.onkeydown = (event) => {
    const { key, target } = event;
    const next = choices[choices.indexOf(target) + { ArrowLeft: -1, ArrowRight: 1 }[key]];
    if (!target.alternatives || !(next || key === "Enter" || key === " ")) return;
    event.preventDefault();
    if (next) {
      target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    } else {
      open(target, tokens, branch);
      shown.querySelector("button:enabled")?.focus();
    }
  };
  element.onpointerover = ({ target, pointerType }) => {
    if (pointerType === "mouse" && target.alternatives) open(target, tokens, branch);
  };
  element.onclick = ({ target }) => target.alternatives && open(target, tokens, branch);
}

let shown = null; // the open panel

// Returns whether it was open. The token that it is about has the focus again, if the panel had it.
export function closeAlternatives() {
  if (!shown) return false;
  if (shown.contains(document.activeElement)) shown.span.focus({ preventScroll: true });
  shown.remove();
  shown = null;
  return true;
}

function open(span, tokens, branch) {
  if (shown?.span === span) return;
  closeAlternatives();
  const [id, text, logprob] = tokens[span.dataset.i];
  const rows = span.alternatives.map(([other, name, p, isSpecial = false]) => {
    const onclick = () => {
      closeAlternatives();
      branch(Number(span.dataset.i), [other, name]);
    };
    const title = say("branch.at", { token: visible(name), share: percent(p) });
    return likely(isSpecial ? say("token.end") : visible(name), p, { disabled: isSpecial || other === id, onclick, title });
  });
  const head = el("p", {}, el("code", {}, visible(text)), ` ${percent(logprob)}`);
  const hint = el("small", {}, say("alternatives.hint"));
  const panel = el("div.alternatives", { role: "dialog", "aria-label": say("alternatives") }, head, ...rows, hint);
  shown = panel;
  panel.span = span;
  // A finger leaves the panel before its tap becomes a click.
  panel.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && closeAlternatives());
  span.closest(".gpt").append(panel);
  const place = span.getBoundingClientRect();
  const { width, height } = panel.getBoundingClientRect();
  const below = place.bottom + height < innerHeight || place.top < height;
  panel.style.left = `${Math.max(4, Math.min(place.left, innerWidth - width - 4))}px`;
  panel.style.top = `${below ? place.bottom : place.top - height}px`;
}

// What the model read before a reply: its tokens, with the roles set off.
export function showPrompt(element, prompt) {
  const spans = prompt.map(([id, text, isSpecial]) =>
    el(`span.token.read${isSpecial ? ".special" : ""}`, { title: String(id) }, isSpecial ? text : visible(text)),
  );
  element.replaceChildren(...spans);
}
