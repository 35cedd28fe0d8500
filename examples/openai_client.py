"""Any client of OpenAI's talks with our server: here their own package, as a stream.

python -m gptcore serve models/nano --port 8000          (in another terminal)
pip install openai
python examples/openai_client.py "Tell me a story about a cat." [http://127.0.0.1:8000/v1]
"""

import sys

from openai import OpenAI

if len(sys.argv) < 2:
    sys.exit("usage: python examples/openai_client.py MESSAGE [ADDRESS]")
message, *address = sys.argv[1:]
client = OpenAI(base_url=address[0] if address else "http://127.0.0.1:8000/v1", api_key="none")
model = client.models.list().data[0].id
stream = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": message}],
    temperature=0,
    stream=True,
)
for part in stream:
    print(part.choices[0].delta.content or "", end="", flush=True)
print()
