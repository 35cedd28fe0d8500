// The large files of the site, which are downloaded once: from this browser's cache, or else from the
// server, with progress. A file of a new version has another address; what the site has no more goes.

const CACHE = "gptcore-files";

export class Told extends Error {
  // An error that the page tells in a person's language; see view/words.
  constructor(key, values = {}) {
    super(key);
    Object.assign(this, { key, values });
  }
}

// Returns what throws that the connection broke off.
function lost(name) {
  return () => {
    throw new Told("file.lost", { name });
  };
}

// Returns the answer of the server; throws that a file is missing or lost.
async function answered(address, name, cache) {
  const response = await fetch(address, { cache }).catch(lost(name));
  if (!response.ok) throw new Told(response.status === 404 ? "file.missing" : "file.lost", { name });
  return response;
}

export class Files {
  // `root`: the site's address; sizes and versions are by name, as in site.json.
  constructor({ root, files, versions }) {
    // What a page in one file has inside, by name; see single/unpack.js.
    const { contents = {}, addresses = {} } = self.inside ?? {};
    Object.assign(this, { root, sizes: files, versions, contents, addresses });
    this.damaged = new Set(); // names whose download was not whole; the browser's own cache may hold it
    this.failed = {}; // how often a script could not be fetched, by name
  }

  address(name) {
    const version = this.versions[name];
    const [query, fragment] = [version ? `?v=${version}` : "", this.failed[name] ? `#${this.failed[name]}` : ""];
    return this.addresses[name] ?? this.root + name + query + fragment;
  }

  // Returns the content of a small file of JSON, as the server has it now.
  async json(name) {
    if (name in this.contents) return JSON.parse(new TextDecoder().decode(this.contents[name]));
    const response = await answered(this.address(name), name, "no-cache");
    return response.json().catch(lost(name));
  }

  // Returns what a script exports. Some browsers (Chromium 150) never fetch a script again that they could not
  // fetch, unless its address has another fragment.
  script(name) {
    return import(this.address(name)).catch(() => {
      this.failed[name] = (this.failed[name] ?? 0) + 1;
      return lost(name)();
    });
  }

  // Returns how many bytes of these files are to be downloaded.
  async missing(names) {
    const cache = await openCache();
    const isHere = async (name) => name in this.contents || cache?.match(this.address(name));
    const isKept = await Promise.all(names.map(isHere));
    return names.reduce((sum, name, i) => sum + (isKept[i] ? 0 : this.sizes[name]), 0);
  }

  // Returns the files' contents, by name; tells `onProgress` of {loaded, total} bytes.
  async get(names, onProgress) {
    const total = await this.missing(names);
    let loaded = 0;
    const count = (n) => onProgress({ loaded: (loaded += n), total });
    const contents = await Promise.all(names.map((name) => this.one(name, count)));
    return Object.fromEntries(names.map((name, i) => [name, contents[i]]));
  }

  async one(name, count) {
    if (name in this.contents) return this.contents[name];
    const [address, cache] = [this.address(name), await openCache()];
    const kept = await cache?.match(address);
    if (kept) return kept.arrayBuffer();
    const response = await answered(address, name, this.damaged.has(name) ? "reload" : "default");
    const content = await read(response, this.sizes[name], count);
    if (!content) {
      this.damaged.add(name);
      throw new Told("file.lost", { name });
    }
    const headers = { "Content-Type": response.headers.get("Content-Type") ?? "application/octet-stream" };
    if (cache) await this.forgetOld(cache);
    await cache?.put(address, new Response(content, { headers })).catch(() => {}); // there is no room
    return content;
  }

  // Deletes old versions, and the files of another model that this site had.
  async forgetOld(cache) {
    const ours = Object.keys(this.versions).map((name) => new URL(this.address(name)).href);
    const folders = ["models/", "vendor/"].map((folder) => this.root + folder); // another site may lie below
    const isOld = ({ url }) => folders.some((folder) => url.startsWith(folder)) && !ours.includes(url);
    await Promise.all((await cache.keys()).filter(isOld).map((request) => cache.delete(request)));
  }
}

// Private windows and plain http have no cache.
async function openCache() {
  return globalThis.caches?.open(CACHE).catch(() => null);
}

// Returns the content of a response, or null if it does not have `size` bytes.
async function read(response, size, count) {
  const content = new Uint8Array(size);
  let at = 0;
  try {
    for (const reader = response.body.getReader(); ; ) {
      const { value, done } = await reader.read();
      if (done) return at === size ? content.buffer : null;
      if (at + value.length > size) return null;
      content.set(value, at);
      at += value.length;
      count(value.length);
    }
  } catch {
    return null; // the connection broke off
  }
}
