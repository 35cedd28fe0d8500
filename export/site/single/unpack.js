// The first script of a site in one file (python -m export web --single-file), and of its worker: it
// gives each file that is inside an address in this browser, a "blob:" URL, and starts the page.
//
// Browsers give a page that was opened as a file no address that its worker may read, and no worker
// that is a module. So the worker begins with this script, too, and makes addresses of its own; WebKit's
// can import no blob, only a "data:" URL.

const SCRIPT = /\.m?js$/;
const KIND = "text/javascript";
const addresses = {}; // by name; in the worker of scripts alone
self.inside = { addresses };

// `files`: [name, ArrayBuffer], each after those that it names.
function place(files) {
  for (const [name, content] of files) {
    const script = SCRIPT.test(name) ? linked(textOf(content), name) : null;
    if (self.document) addresses[name] = URL.createObjectURL(new Blob([script ?? content], { type: script ? KIND : "" }));
    else if (script) addresses[name] = `data:${KIND},${encodeURIComponent(script)}`;
  }
}

function textOf(content) {
  return new TextDecoder().decode(content);
}

// Such an address has no neighbours: each path in quotes that leads to a file becomes its address.
function linked(text, name) {
  return text.replace(/"(\.{1,2}\/[\w./-]+)"/g, (found, path) => {
    const { pathname } = new URL(path, `file:///${name}`);
    const address = addresses[pathname.slice(1)];
    return address ? `"${address}"` : found;
  });
}

async function startPage(source) {
  const elements = [...document.querySelectorAll("script[data-name]")];
  const files = await Promise.all(elements.map(async (element) => [element.dataset.name, await unpack(element)]));
  for (const [name, content] of files) {
    if (!name.endsWith(".css")) continue;
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(textOf(content));
    document.adoptedStyleSheets.push(sheet);
  }
  self.inside.startWorker = () => {
    const worker = new Worker(URL.createObjectURL(new Blob([source], { type: KIND })));
    worker.postMessage(files.filter(([name]) => !name.startsWith("view/"))); // copies: another one may follow
    return worker;
  };
  place(files);
  await import(addresses["site.js"]);
}

function unpack(element) {
  const text = atob(element.textContent);
  element.remove(); // its memory is needed
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) packed[i] = text.charCodeAt(i);
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

async function startWorker({ data: files }) {
  const waiting = [];
  self.onmessage = (event) => waiting.push(event);
  self.inside.contents = Object.fromEntries(files);
  place(files);
  await import(addresses["worker.js"]); // which takes over the messages
  for (const event of waiting) self.onmessage(event);
}

if (!self.document) {
  self.onmessage = (event) => startWorker(event).catch(reportError);
} else if (self.DecompressionStream) {
  startPage(document.currentScript.textContent).catch(({ message }) => {
    document.getElementById("view").textContent = `The file is damaged: get it again. 文件已损坏，请重新获取。(${message})`;
  });
} // else the browser is too old, as the text says that stays
