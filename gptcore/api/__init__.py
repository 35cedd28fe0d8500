"""The HTTP API that clients of OpenAI's speak: beside the page, or alone as `gptcore serve`."""
