// What is said of a run: what goes on in one line, and what the model writes.

import { el } from "../dom.js";
import { say } from "../words.js";
import { rounded } from "./chart.js";

// What the model wrote at a step: replies below what they answer, or texts that go on.
export function written({ samples: { step, written }, is_chat: isChat }) {
  const said = (role, text) => el("p", {}, el("small", {}, say(role)), el("span", {}, text));
  const dialogue = ([prompt, text]) => el("blockquote", {}, said("role.user", prompt), said("role.assistant", text));
  const goesOn = ([prompt, text]) => el("blockquote", {}, el("b", {}, prompt), ` ${text}`);
  return [el("h2", {}, say("train.samples", { step })), ...written.map(isChat ? dialogue : goesOn)];
}

// Why a text, or what is packed in it, is not used: [reason, the names of the files], a list.
export function reasons(text, refused) {
  const found = {};
  for (const [file, why] of Object.entries(refused)) if (`${file}/`.startsWith(`${text}/`)) (found[why] ??= []).push(file);
  return Object.entries(found);
}

// Of an export, by its last line; the first that fits.
const STAGES = [
  [/^writing/, "stage.writing"],
  [/^starting|open/, "stage.opening"],
  [/^every token/, "stage.tokens"],
  [/^left-padded/, "stage.rows"],
  [/(greedy tokens|uncached|steps):/, "stage.steps"],
  [/^PyTorch/, "stage.torch"],
  [/^comparing|%\|/, "stage.comparing"],
];

// Returns what a command's last line says: of a bar its percentage, and of an export its stage alone,
// as each of its many bars counts to 100 %.
function heard(line, doing) {
  if (doing === "export") return say(STAGES.find(([pattern]) => pattern.test(line))?.[1] ?? "");
  const [, name = "", percent] = /^(?:(.*): )? *(\d+)%\|/.exec(line) ?? [];
  return percent ? `${name} ${percent} %`.trim() : line;
}

// What goes on, in one line. `said`: what the running command has printed.
export function stage({ doing, run, said, is_stepping: isStepping, is_exported: isExported }) {
  if (doing && !(isStepping && run?.step)) {
    const isSample = (line) => /^ {2}\D/.test(line); // a bar begins with its percentage
    return `${say(`doing.${doing}`)} ${heard(said.split("\n").findLast((line) => !isSample(line)) ?? "", doing)}`;
  }
  if (!run) return "";
  const { step, steps, bits_per_byte: bits, is_complete: isComplete, is_saved: isSaved } = run;
  const parts = [say("train.step", { step, steps })];
  if (doing) parts.push(left(run));
  else parts.push(say(isComplete ? "train.complete" : isSaved ? "train.paused" : "train.unsaved"));
  if (bits !== null) parts.push(say("train.bits", { bits: rounded(bits) }));
  if (!doing && isSaved && !isExported) parts.push(say("train.minute", { button: say(talk(run)) }));
  return parts.join(" · ");
}

// The word of the button that opens a run's model.
export const talk = ({ is_chat: isChat }) => (isChat === false ? "train.write" : "train.chat");

// How long it still takes, or what is done while that cannot be said.
function left({ step, steps, left_s: left, is_measuring: isMeasuring }) {
  if (isMeasuring || step === steps) return say("train.measuring");
  if (left === null) return say("train.left.soon");
  if (left < 1) return say("train.left.last");
  return left < 90 ? say("train.left.s", { n: Math.round(left) }) : say("train.left", { minutes: Math.round(left / 60) });
}
