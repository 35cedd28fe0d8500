// A fetch with progress: it knows the total size and posts the number of bytes received.

export class Downloads {
  constructor(root, sizes, paths) {
    this.root = root;
    this.total = paths.reduce((sum, path) => sum + (sizes[path] ?? 0), 0);
    this.loaded = {}; // bytes received, by path
    this.failure = null;
  }

  async fetch(url) {
    const path = String(url).slice(this.root.length);
    let response;
    try {
      response = await fetch(url, { cache: "no-cache" }); // revalidates a cached file
    } catch (error) {
      throw (this.failure ??= new Error(`${path} did not arrive (${error.message}): try again`));
    }
    if (!response.ok) {
      const why = `${path} is missing from this site (status ${response.status}): build it again`;
      throw (this.failure ??= new Error(why));
    }
    return new Response(response.body.pipeThrough(this.counter(path)), response);
  }

  counter(path) {
    let loaded = 0;
    return new TransformStream({
      transform: (chunk, controller) => {
        loaded += chunk.length;
        this.loaded[path] = Math.max(loaded, this.loaded[path] ?? 0); // a file may be fetched twice
        this.post();
        controller.enqueue(chunk);
      },
    });
  }

  post() {
    const loaded = Object.values(this.loaded).reduce((a, b) => a + b, 0);
    postMessage({ type: "progress", loaded, total: this.total });
  }
}
