"""A row's text that is a conversation, written with the marks of a model's template.

Sets of data for fine-tuning have such texts. As they are, they would teach a model to write the
marks, and the user's turns with them.

>>> turns_in("### Human: Hi### Assistant: Hello!")
[{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello!'}]
"""

import re

# What begins a turn: of Guanaco, Vicuna's kin and Alpaca, of Anthropic, of ChatML, of Llama 2, of
# Llama 3, of Gemma, of Zephyr and Phi-3.
HEAD = r"<\|start_header_id\|>{}<\|end_header_id\|>\n"
TEMPLATES = [
    re.compile(f"(?m)(?P<user>{user})|(?P<assistant>{assistant})|(?P<system>{system})")
    for user, assistant, system in (
        ("### (?:Human|User|Instruction):", "### (?:Assistant|Response):", "### System:"),
        ("^Human:", "^Assistant:", "^System:"),
        (r"<\|im_start\|>user\n", r"<\|im_start\|>assistant\n", r"<\|im_start\|>system\n"),
        (r"\[INST\](?!\s*<<SYS>>)|<</SYS>>", r"\[/INST\]", r"\[INST\]\s*<<SYS>>"),
        (HEAD.format("user"), HEAD.format("assistant"), HEAD.format("system")),
        ("<start_of_turn>user\n", "<start_of_turn>model\n", "<start_of_turn>system\n"),
        (r"<\|user\|>\n", r"<\|assistant\|>\n", r"<\|system\|>\n"),
    )
]
ENDS = re.compile(
    r"</?s>|<\|(?:im_end|endoftext|eot_id|begin_of_text|end_of_text|end)\|>|"
    r"<(?:bos|eos|end_of_turn)>"
)
INPUT = re.compile(r"### Input:\n")  # Alpaca's, below an instruction
PREFACE = re.compile(  # a model's mark of a beginning, or Alpaca's words
    r"\s*((?:<s>|<\|begin_of_text\|>|<bos>)\s*|Below is an instruction [^#]*)?"
)


def turns_in(text: str) -> list[dict[str, str]]:
    """Return the turns of a text that begins with one of the user and has one of an assistant.

    Other texts have none.
    """
    preface = PREFACE.match(text)
    start = preface.end() if preface else 0
    template = next((one for one in TEMPLATES if one.match(text, start)), None)
    marks = [*template.finditer(text, start)] if template else []
    roles = [str(mark.lastgroup) for mark in marks]
    if "assistant" not in roles[1:]:
        return []
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    said = [ENDS.sub("", text[mark.end() : end]) for mark, end in zip(marks, ends)]
    contents = [INPUT.sub("", one).strip() for one in said]
    return [{"role": r, "content": c} for r, c in zip(roles, contents) if c]
