// Chat with an embedding kit in Node.
//
//   python -m export embed models/nano --out kit
//   npm install --prefix examples/embed --ignore-scripts
//   node examples/embed/chat.mjs kit "Tell me a story about a cat." [0.7]
//   node examples/embed/chat.mjs kit --check          compares it with kit/vectors.json
//
// The last argument is the temperature; without it the likeliest token is taken.
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { Tokenizer } from "@huggingface/tokenizers";
import * as ort from "onnxruntime-node";

import { Kit } from "./kit.mjs";

const [folder, message = "Hello!", temperature = "0"] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node chat.mjs KIT [MESSAGE | --check] [TEMPERATURE]");
  process.exit(2);
}
if (!existsSync(join(folder, "contract.json"))) {
  console.error(`${folder} is not a kit: write one with python -m export embed`);
  process.exit(2);
}
const read = async (name) => JSON.parse(await readFile(join(folder, name), "utf-8"));
const open = (name) => ort.InferenceSession.create(join(folder, name));
const kit = await Kit.open(ort, Tokenizer, { read, open });

if (message === "--check") {
  const portable = await open(kit.contract.files.portable);
  const lines = await kit.check(await read("vectors.json"), portable);
  for (const line of lines) console.log(line);
  const isWhole = (line) => /: (\d+) of \1$/.test(line);
  if (!lines.every(isWhole)) process.exitCode = 1;
} else {
  const text = kit.tokens.stream();
  const ids = kit.prompt([{ role: "user", content: message }]);
  for await (const id of kit.write(ids, 500, { temperature: Number(temperature) }))
    if (!kit.stop.has(id)) process.stdout.write(text(id));
  console.log();
}
