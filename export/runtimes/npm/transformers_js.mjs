// transformers.js in Node: generate() on the file of a dtype, or on the one that config.json names.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const log = console.log; // what a library prints must not mix with the replies
console.log = console.error;
const require = createRequire(`${process.cwd()}/`); // the environment's node_modules
const { AutoModelForCausalLM, Tensor, env } = require("@huggingface/transformers");

const [folder, threads, dtype] = process.argv.slice(2);
env.allowRemoteModels = false;
const model = await AutoModelForCausalLM.from_pretrained(folder, {
  dtype,
  session_options: { intraOpNumThreads: Number(threads) },
});

const toTensor = (rows) =>
  new Tensor("int64", BigInt64Array.from(rows.flat(), BigInt), [rows.length, rows[0].length]);

async function answer({ prompts, n }) {
  const width = Math.max(...prompts.map((prompt) => prompt.length));
  const padding = prompts.map((prompt) => Array(width - prompt.length).fill(0));
  const times = []; // one when generate() receives the prompt, then one per token
  const result = await model.generate({
    input_ids: toTensor(prompts.map((prompt, i) => [...padding[i], ...prompt])),
    attention_mask: toTensor(prompts.map((prompt, i) => [...padding[i], ...prompt.map(() => 1)])),
    max_new_tokens: n,
    do_sample: false,
    eos_token_id: null,
    repetition_penalty: 1, // not what generation_config.json recommends
    streamer: { put: () => times.push(performance.now()), end: () => {} },
  });
  return {
    ids: result.tolist().map((row) => row.slice(width).map(Number)),
    prefill_seconds: (times[1] - times[0]) / 1000,
    seconds: (times.at(-1) - times[1]) / 1000,
  };
}

log(JSON.stringify({ runtime: "transformers.js", version: env.version, file: dtype ?? "onnx/model.onnx" }));
for await (const line of createInterface({ input: process.stdin })) {
  log(JSON.stringify(await answer(JSON.parse(line))));
}
