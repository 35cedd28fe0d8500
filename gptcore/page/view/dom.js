// Elements, made in one expression. Text is always set as text.
//
//     el("button.quiet", { onclick: send, "aria-label": "Send" }, "Send")

export function el(kind, attributes = {}, ...content) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...content.flat().filter((part) => part !== null && part !== undefined));
  return element;
}

// An element of a drawing.
export function shape(name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.textContent = text;
  return element;
}

// Drawn here, so that no font or file is needed; each path is on a grid of 24.
const SHAPES = {
  chats: "M4 6h16M4 12h16M4 18h10",
  plus: "M12 5v14M5 12h14",
  settings: "M4 7h10M18 7h2M4 17h4M12 17h8M14 4v6M8 14v6",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h10v10H9zM15 9V5H5v10h4",
  retry: "M20 11a8 8 0 1 0-2 6M20 5v6h-6",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  remove: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  next: "M9 6l6 6-6 6",
  previous: "M15 6l-6 6 6 6",
  light: "M12 4V2M12 22v-2M4 12H2M22 12h-2M6 6 4.5 4.5M19.5 19.5 18 18M6 18l-1.5 1.5M19.5 4.5 18 6M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8",
  dark: "M20 14A8 8 0 1 1 10 4a7 7 0 0 0 10 10z",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  tint: "M12 3s6 6.5 6 11a6 6 0 0 1-12 0c0-4.5 6-11 6-11M12 17a3 3 0 0 0 3-3",
  plain: "M5 6h14M12 6v13M9 19h6",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 18v.5",
  info: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16M12 11v5M12 8v.5",
  down: "M12 5v14M6 13l6 6 6-6",
  dots: "M5 12h.01M12 12h.01M19 12h.01",
  close: "M6 6l12 12M18 6L6 18",
  read: "M4 5h7v14H4zM13 5h7v14h-7",
};

export function icon(name) {
  const svg = shape("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", class: "icon" });
  svg.append(shape("path", { d: SHAPES[name] }));
  return svg;
}

// A button with a picture, whose name is told to screen readers and shown as a hint.
export function iconButton(name, label, onclick, kind = "") {
  const attributes = { type: "button", "aria-label": label, title: label, onclick };
  return el(`button.symbol${kind}`, attributes, icon(name));
}
