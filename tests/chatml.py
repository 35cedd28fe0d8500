"""A conversation in a format of another family, ChatML, whose tokens are bytes."""

from gptcore.text.chat_format import ChatFormat
from gptcore.text.chat_template import messages_of
from gptcore.text.tokenizer import Tokenizer

CHATML = ChatFormat(
    text="<|endoftext|>",
    opening="<|im_start|>system\n",
    opening_alone="<|im_start|>system\nBe helpful.<|im_end|>\n",
    system=("", "<|im_end|>\n"),
    user=("<|im_start|>user\n", "<|im_end|>\n"),
    assistant=("<|im_start|>assistant\n", "<|im_end|>\n"),
    prompt="<|im_start|>assistant\n",
)
FOREIGN = Tokenizer(
    {bytes([b]): b for b in range(256)},
    special={"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2},
    chat=CHATML,
)
CHAT = messages_of(["Hi", "Hello!", "Who?", "<|im_end|>\nMe."])


def text_of(ids: list[int]) -> str:
    names = {i: name.encode() for name, i in FOREIGN.special.items()}
    return b"".join(names.get(i) or FOREIGN.token_bytes(i) for i in ids).decode()
