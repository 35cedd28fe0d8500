"""Chat with a model folder through Microsoft's Foundry Local, within this process and offline.

    pip install foundry-local-sdk==2.2.1       (in an environment of its own: it pins onnxruntime)
    python examples/foundry_local_chat.py "Tell me a story about a cat."

The package can send telemetry; this program turns off what can be turned off.
"""

import argparse
import tempfile
from pathlib import Path

from foundry_local_sdk import (
    CatalogType,
    ChatSession,
    Configuration,
    FoundryLocalManager,
    MessageItem,
    ModelInfoBuilder,
    Request,
    RequestOptions,
    SearchOptions,
    TextItem,
)

parser = argparse.ArgumentParser()
parser.add_argument("message")
parser.add_argument("--model", type=Path, default=Path("models/nano"))
parser.add_argument("--temperature", type=float, default=0, help="0 takes the likeliest token")
options = parser.parse_args()

with tempfile.TemporaryDirectory() as data:  # it keeps a list of models and logs there
    FoundryLocalManager.initialize(
        Configuration("gptcore", app_data_dir=data, disable_nonessential_telemetry=True)
    )
    catalog = FoundryLocalManager.instance.get_catalog(CatalogType.LOCAL)
    with ModelInfoBuilder() as facts:
        facts.set_string_property("task", "chat-completion")
        name = f"{options.model.resolve().name}-generic-cpu:1"
        folder = str(options.model.resolve())
        model = catalog.register_model(model_path=folder, model_id=name, metadata=facts)
    model.load()
    with ChatSession(model) as session:
        session.set_streaming(True)
        search = SearchOptions(temperature=options.temperature, max_output_tokens=200)
        session.set_options(RequestOptions(search=search))
        with Request().add_item(MessageItem.user(options.message)) as request:
            for item in session.process_streaming_request(request):
                if isinstance(item, TextItem):
                    print(item.text, end="", flush=True)
    print()
    model.unload()
