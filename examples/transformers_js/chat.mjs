// Chat with a model folder through transformers.js, in Node.
//
//   npm install --prefix examples/transformers_js --ignore-scripts
//   node examples/transformers_js/chat.mjs "Tell me a story about a cat." [models/nano] [0.7]
//
// The last argument is the temperature; without it the likeliest token is chosen.
import { resolve } from "node:path";

import { env, pipeline, TextStreamer } from "@huggingface/transformers";

const [message, model = "models/nano", temperature = "0"] = process.argv.slice(2);
if (!message) {
  console.error("usage: node chat.mjs MESSAGE [MODEL_FOLDER] [TEMPERATURE]");
  process.exit(2);
}
env.allowRemoteModels = false; // a wrong folder is an error, not a download
const generator = await pipeline("text-generation", resolve(model), { dtype: "fp32" });

const streamer = new TextStreamer(generator.tokenizer, {
  skip_prompt: true,
  skip_special_tokens: true,
  callback_function: (text) => process.stdout.write(text),
});
const sampling =
  Number(temperature) > 0
    ? { do_sample: true, temperature: Number(temperature) }
    : { do_sample: false };
await generator([{ role: "user", content: message }], { ...sampling, streamer });
console.log();
