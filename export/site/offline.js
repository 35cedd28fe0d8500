// The service worker: with a network it asks the server, so that a new version shows at once; without
// one, or with one that stalls, it answers with what it has kept. The large files, whose addresses have a version, are kept by
// files.js.

const CACHE = "gptcore-site";
const HERE = new URL("./", location).pathname;
// Beside and below the site its host may have others.
const OWN = /^($|index\.html$|site\.json$|manifest\.webmanifest$|[^/]+\.m?js$|(view|vendor|models)\/)/;
const PATIENCE_MS = 3000; // with a server, where a file is kept
const FOR_PEOPLE = /\.md$|\/LICENSE[^/]*$/; // some hosts serve no README.md
let stalls = false; // the server, in this visit

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(keepAll());
});
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname, search } = new URL(request.url);
  if (request.method !== "GET" || search || origin !== location.origin || !pathname.startsWith(HERE)) return;
  if (OWN.test(pathname.slice(HERE.length))) event.respondWith(answer(request));
});

async function keepAll() {
  const site = await (await fetch("site.json", { cache: "no-cache" })).json();
  const small = Object.keys(site.files).filter((name) => !(name in site.versions) && !FOR_PEOPLE.test(name));
  const cache = await caches.open(CACHE);
  await cache.addAll(["./", "site.json", ...small].map((name) => new Request(name, { cache: "no-cache" })));
}

async function answer(request) {
  const cache = await caches.open(CACHE);
  if (request.mode === "navigate") stalls = false;
  const kept = await cache.match(request, { ignoreVary: true });
  const asked = async () => {
    const response = await fetch(request, { cache: "no-cache" }); // else a browser keeps old files for days
    if (kept && response.status >= 500) return kept; // the host is down
    if (response.ok) cache.put(request, response.clone()).catch(() => {}); // the disk may be full
    return response;
  };
  const answered = asked().catch(() => kept ?? Response.error());
  if (!kept) return answered;
  const first = await Promise.race([answered, new Promise((late) => setTimeout(late, stalls ? 0 : PATIENCE_MS))]);
  if (!first) stalls = true;
  return first ?? kept;
}
