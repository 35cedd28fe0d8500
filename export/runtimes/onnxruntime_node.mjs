// onnxruntime-node alone, without transformers.js: the loop that a program in JavaScript can use.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(`${process.cwd()}/`); // the environment's node_modules
const ort = require("onnxruntime-node");

const FILE = "onnx/model.onnx";
const [folder, threads] = process.argv.slice(2);
const options = { intraOpNumThreads: Number(threads), executionMode: "sequential" };
const session = await ort.InferenceSession.create(join(folder, FILE), options);
const { version } = JSON.parse(readFileSync(require.resolve("onnxruntime-node/package.json")));
const caches = session.inputMetadata.filter(({ name }) => name.startsWith("past"));

const toTensor = (rows) =>
  new ort.Tensor("int64", BigInt64Array.from(rows.flat(), BigInt), [rows.length, rows[0].length]);

// The likeliest token of each row, from logits (B, T, V).
function likeliest({ data, dims: [batch, length, size] }) {
  return Array.from({ length: batch }, (_, row) => {
    const last = data.subarray((row * length + length - 1) * size, (row + 1) * length * size);
    return last.reduce((best, value, id) => (value > last[best] ? id : best), 0);
  });
}

async function answer({ prompts, n }) {
  const width = Math.max(...prompts.map((prompt) => prompt.length));
  const padding = prompts.map((prompt) => Array(width - prompt.length).fill(0));
  let ids = prompts.map((prompt, i) => [...padding[i], ...prompt]);
  let mask = prompts.map((prompt, i) => [...padding[i], ...prompt.map(() => 1)]);
  let positions = prompts.map((prompt, i) => [...padding[i], ...prompt.keys()]);
  let cache = Object.fromEntries(
    caches.map(({ name, shape }) => {
      const dims = [prompts.length, shape[1], 0, shape[3]];
      return [name, new ort.Tensor("float32", new Float32Array(), dims)];
    }),
  );
  const [written, times] = [prompts.map(() => []), [performance.now()]];
  for (let i = 0; i < n; i += 1) {
    const feeds = { input_ids: toTensor(ids), attention_mask: toTensor(mask), position_ids: toTensor(positions) };
    const made = await session.run({ ...feeds, ...cache });
    const chosen = likeliest(made.logits);
    chosen.forEach((id, row) => written[row].push(id));
    times.push(performance.now());
    cache = Object.fromEntries(caches.map(({ name }) => [name, made[name.replace("past_key_values", "present")]]));
    ids = chosen.map((id) => [id]);
    mask = mask.map((row) => [...row, 1]);
    positions = positions.map((row) => [row.at(-1) + 1]);
  }
  return {
    ids: written,
    prefill_seconds: (times[1] - times[0]) / 1000,
    seconds: (times.at(-1) - times[1]) / 1000,
  };
}

console.log(JSON.stringify({ runtime: "onnxruntime-node", version, file: FILE }));
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))));
}
