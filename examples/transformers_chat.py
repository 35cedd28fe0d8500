"""Chat with a model folder through Hugging Face's transformers.

pip install transformers torch
python examples/transformers_chat.py "Tell me a story about a cat."
"""

import argparse

from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

parser = argparse.ArgumentParser()
parser.add_argument("message")
parser.add_argument("--model", default="models/nano")
parser.add_argument("--temperature", type=float, default=0, help="0 takes the likeliest token")
options = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained(options.model)
model = AutoModelForCausalLM.from_pretrained(options.model)
inputs = tokenizer.apply_chat_template(
    [{"role": "user", "content": options.message}],
    add_generation_prompt=True,
    return_tensors="pt",
    return_dict=True,
)
sampling = {"do_sample": False}
if options.temperature > 0:
    sampling = {"do_sample": True, "temperature": options.temperature}
streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
model.generate(**inputs, **sampling, streamer=streamer)
