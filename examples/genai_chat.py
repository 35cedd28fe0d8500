"""Chat with a model folder through onnxruntime-genai.

pip install onnxruntime-genai
python examples/genai_chat.py "Tell me a story about a cat."
"""

import argparse
import json

import onnxruntime_genai as og

parser = argparse.ArgumentParser()
parser.add_argument("message")
parser.add_argument("--model", default="models/nano")
parser.add_argument("--temperature", type=float, default=0, help="0 takes the likeliest token")
options = parser.parse_args()

model = og.Model(options.model)
tokenizer = og.Tokenizer(model)
messages = json.dumps([{"role": "user", "content": options.message}])
prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)

params = og.GeneratorParams(model)
if options.temperature > 0:
    params.set_search_options(do_sample=True, temperature=options.temperature)
generator = og.Generator(model, params)
generator.append_tokens(tokenizer.encode(prompt))
stream = tokenizer.create_stream()
while True:
    generator.generate_next_token()
    if generator.is_done():
        break
    print(stream.decode(generator.get_next_tokens()[0]), end="", flush=True)
print()
