// A line above what a person types: an error, or something that was done and can be undone.

import { el, icon } from "../dom.js";
import { say } from "../words.js";

export class Notice {
  element = el("div.notice", { role: "alert", hidden: true });

  // Shows a text until the next one. `undo`, if given, is offered as a button with the words `label`;
  // `share`, from 0 to 1, is shown as a bar.
  tell(text, { undo = null, label = say("undo"), isError = true, share = null } = {}) {
    const { element } = this;
    const isShown = text && !element.hidden && element.firstChild.textContent === text;
    if (isShown && !undo && share === null) return; // a screen reader would say it again
    const bar = element.querySelector("progress");
    if (bar && share !== null) {
      bar.value = share;
      element.firstChild.textContent = text;
      return;
    }
    element.hidden = !text;
    element.classList.toggle("error", isError);
    element.setAttribute("role", isError ? "alert" : "status");
    element.setAttribute("aria-busy", String(share !== null)); // a screen reader need not count along
    const take = async () => {
      this.tell("");
      await undo();
    };
    const close = { type: "button", onclick: () => this.tell(""), "aria-label": say("close") };
    element.replaceChildren(
      el("span", {}, text),
      ...(share === null ? [] : [el("progress", { value: share, "aria-label": text })]),
      ...(undo ? [el("button", { type: "button", onclick: take }, label)] : []),
      el("button.symbol", close, icon("close")),
    );
  }

  // Tells what a reply waits for, as its events say.
  follow({ waiting, loaded, total, prompt }) {
    if (waiting) this.tell(say("waiting", { n: waiting }), { isError: false });
    if (total) {
      const [have, all] = [loaded, total].map((bytes) => (bytes / 1e6).toFixed(1));
      const text = loaded < total ? say("loading", { have, all }) : say("opening");
      this.tell(text, { isError: false, share: loaded / total });
    }
    if (prompt) this.tell("");
  }
}
