// The page of a base model, which was not trained on conversations. It continues a text in place.

export class TextMode {
  constructor($, ask) {
    Object.assign(this, { ask, box: $("box") });
    this.before = null; // the text before its last continuation
    document.body.classList.add("text");
    $("tagline").textContent =
      "A base model in your browser: it continues your text, and does not answer questions.";
    $("go").textContent = "Continue";
    this.box.placeholder = "Write a beginning; the button (or Shift+Enter) continues it";
  }

  isSendKey(event) {
    return event.shiftKey;
  }

  isEmpty() {
    return false; // the model may write a text from nothing
  }

  leftOut() {
    return "the beginning of the text no longer fits and was left out";
  }

  canRetry() {
    return this.before !== null;
  }

  send() {
    this.before = this.box.value;
    this.ask({ text: this.before });
  }

  retry() {
    this.box.value = this.before;
    this.send();
  }

  show({ text }) {
    this.box.value = this.before + text;
    this.box.scrollTop = this.box.scrollHeight;
  }

  undo() {
    this.box.value = this.before;
  }

  clear() {
    this.before = null;
    this.box.value = "";
    this.box.focus();
  }

  setBusy(isBusy) {
    this.box.readOnly = isBusy;
  }
}
