"""Which of several functions a model calls, where a client demands the call of one.

    python benchmarks/serving/functions.py models/default

24 requests are six of each of four functions. One is right if it calls its own function; the
arguments, which always are of their schema, are printed for people to judge. A guess is right in a
quarter.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import requests

from benchmarks.crowds.servers import free_port, running

TEXT = {"type": "string", "maxLength": 60}
NUMBER = {"type": "number"}
FUNCTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "get_weather": ("Tells the weather of a city.", {"city": TEXT}),
    "send_email": ("Sends an e-mail to somebody.", {"to": TEXT, "subject": TEXT, "text": TEXT}),
    "convert_currency": (
        "Converts money from one currency into another.",
        {"amount": NUMBER, "source": TEXT, "target": TEXT},
    ),
    "set_alarm": (
        "Sets an alarm.",
        {
            "hour": {"type": "integer", "minimum": 0, "maximum": 23},
            "minute": {"type": "integer", "minimum": 0, "maximum": 59},
        },
    ),
}
ASKED = {
    "get_weather": """\
What is the weather in Paris?
Will it rain in Oslo today?
How warm is it in Cairo?
Do I need an umbrella in London?
Is it snowing in Moscow?
Tell me the forecast for Tokyo.""",
    "send_email": """\
Write to bob@example.com that I am late.
Mail Anna that the meeting is off.
Send an email to my boss: I am sick.
Let Tom know by e-mail that dinner is ready.
Email the team about the release.
Please write a message to info@shop.com and ask for a refund.""",
    "convert_currency": """\
How much is 20 dollars in euros?
Convert 100 yen to pounds.
What are 50 euros in Swiss francs?
Change 5 pounds into dollars.
I have 300 rupees, how many euros is that?
How many dollars do I get for 1000 pesos?""",
    "set_alarm": """\
Wake me at 7:30.
Set an alarm for six in the morning.
I must get up at 5:45.
Ring at 22:00, please.
Alarm at noon.
Please wake me up at 8 o'clock.""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a model folder")
    options = parser.parse_args()
    port = free_port()
    serve = [sys.executable, "-m", "gptcore", "serve", options.model]
    n_right = n = 0
    with running("gptcore", [*serve, "--port", port], port) as server:
        for function, requests_of_it in ASKED.items():
            for text in requests_of_it.splitlines():
                name, arguments = called(server.url, text)
                n, n_right = n + 1, n_right + (name == function)
                print(f"{'right' if name == function else 'WRONG'}  {text}  {name} {arguments}")
    print(f"{n_right} of {n} right")


def called(url: str, text: str) -> tuple[str, str]:
    """Return the function that a model calls for a request, and its arguments."""
    body = {
        "messages": [{"role": "user", "content": text}],
        "tools": [tool(name, *about) for name, about in FUNCTIONS.items()],
        "tool_choice": "required",
        "temperature": 0,
    }
    answer = requests.post(f"{url}/v1/chat/completions", json=body, timeout=300)
    answer.raise_for_status()
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    return call["function"]["name"], call["function"]["arguments"]


def tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    about = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": about}


if __name__ == "__main__":
    main()
