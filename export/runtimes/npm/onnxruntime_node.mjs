// onnxruntime-node alone, without transformers.js.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { greedy } from "./greedy.mjs";

const require = createRequire(`${process.cwd()}/`); // the environment's node_modules
const ort = require("onnxruntime-node");

const FILE = "onnx/model.onnx";
const [folder, threads] = process.argv.slice(2);
const options = { intraOpNumThreads: Number(threads), executionMode: "sequential" };
const session = await ort.InferenceSession.create(join(folder, FILE), options);
const { version } = JSON.parse(readFileSync(require.resolve("onnxruntime-node/package.json")));

console.log(JSON.stringify({ runtime: "onnxruntime-node", version, file: FILE }));
for await (const line of createInterface({ input: process.stdin })) {
  const { prompts, n } = JSON.parse(line);
  const { ids, times } = await greedy(ort, session, prompts, n);
  console.log(JSON.stringify({ ids, prefill_seconds: times[0], seconds: times.at(-1) - times[0] }));
}
