// The page of a model that was trained on conversations.

const EXAMPLES = [
  "Hello! Who are you?",
  "My name is Ada.",
  "Tell me a story about a cat.",
  "What is the capital of France?",
];

export class ChatMode {
  constructor($, ask) {
    Object.assign(this, { ask, log: $("log"), box: $("box"), examples: $("examples") });
    this.messages = []; // {role, content}; a reply also has the ids it was generated as
    this.bubble = null; // the element of the reply that is being generated
    $("tagline").textContent = "A small language model in your browser. It can be wrong.";
    this.box.placeholder = "Type a message";
    this.log.hidden = false;
    this.box.addEventListener("input", () => this.fitBox());
    for (const text of EXAMPLES) this.examples.append(this.example(text));
    this.examples.hidden = false;
  }

  example(text) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", () => {
      this.box.value = text;
      this.box.form.requestSubmit();
    });
    return button;
  }

  isSendKey(event) {
    return !event.shiftKey;
  }

  isEmpty() {
    return !this.box.value.trim();
  }

  leftOut(n) {
    return `the oldest ${n} messages no longer fit and were left out`;
  }

  canRetry() {
    return this.messages.length > 0;
  }

  send() {
    this.messages.push({ role: "user", content: this.box.value });
    this.addBubble("user", this.box.value);
    this.box.value = "";
    this.begin();
  }

  retry() {
    this.messages.pop();
    this.log.lastChild.remove();
    this.begin();
  }

  begin() {
    this.fitBox();
    this.examples.hidden = true;
    this.bubble = this.addBubble("assistant", "");
    this.ask({ messages: this.messages });
  }

  show({ text, ids, finish }) {
    const atEnd = this.log.scrollTop + this.log.clientHeight > this.log.scrollHeight - 40;
    this.bubble.textContent = text;
    if (atEnd) this.log.scrollTop = this.log.scrollHeight;
    if (finish) this.messages.push({ role: "assistant", content: text, ids });
  }

  // Removes a message that could not be answered.
  undo() {
    this.bubble.remove();
    this.log.lastChild.remove();
    const { content } = this.messages.pop();
    this.box.value ||= content;
    this.examples.hidden = this.messages.length > 0;
    this.fitBox();
    this.log.scrollTop = this.log.scrollHeight;
  }

  clear() {
    this.messages = [];
    this.log.replaceChildren();
    this.examples.hidden = false;
    this.box.focus();
  }

  setBusy(isBusy) {
    this.bubble?.classList.toggle("writing", isBusy);
  }

  addBubble(role, text) {
    const bubble = document.createElement("div");
    bubble.className = `message ${role}`;
    bubble.textContent = text;
    this.log.append(bubble);
    this.log.scrollTop = this.log.scrollHeight;
    return bubble;
  }

  fitBox() {
    this.box.style.height = "auto";
    this.box.style.height = `${Math.min(this.box.scrollHeight, 200)}px`;
  }
}
