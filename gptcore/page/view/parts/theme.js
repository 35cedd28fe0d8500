// Light, dark or as the system: a button that goes round.

import { iconButton } from "../dom.js";
import { keep, recall } from "../kept/values.js";
import { say } from "../words.js";

const KEY = "gptcore-theme";
const THEMES = ["system", "light", "dark"];
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

// Returns the button, and lets the page have the theme that was chosen last.
export function themeButton() {
  const theme = THEMES.find((name) => name === recall(KEY)) ?? "system";
  prefersDark.onchange = () => apply(theme);
  apply(theme);
  const label = `${say("theme")}: ${say(`theme.${theme}`)}`;
  const button = iconButton(theme, label, () => {
    keep(KEY, THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
    const next = themeButton();
    button.replaceWith(next);
    next.focus();
  });
  return button;
}

function apply(theme) {
  const isDark = theme === "dark" || (theme === "system" && prefersDark.matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  document.body.classList.toggle("dark", isDark); // Gradio's own
}
