"""Chat with a model through llama.cpp, which reads one .gguf file.

pip install llama-cpp-python                      # compiles llama.cpp: minutes
python -m export gguf models/nano              # writes models/nano.gguf
python examples/llama_cpp_chat.py "Tell me a story about a cat."
"""

import argparse

from llama_cpp import Llama

parser = argparse.ArgumentParser()
parser.add_argument("message")
parser.add_argument("--model", default="models/nano.gguf")
parser.add_argument("--temperature", type=float, default=0, help="0 takes the likeliest token")
options = parser.parse_args()

llama = Llama(options.model, n_ctx=0, verbose=False)  # 0: the context length of the model
chunks = llama.create_chat_completion(
    [{"role": "user", "content": options.message}],
    temperature=options.temperature,
    stream=True,
)
for chunk in chunks:
    print(chunk["choices"][0]["delta"].get("content", ""), end="", flush=True)
print()
