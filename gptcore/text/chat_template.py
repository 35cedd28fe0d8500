"""The chat template: messages to token ids, and the mask of ids that training learns.

A conversation is `<|endoftext|>`, then for each message its role token, its text and `<|end|>`.
A prompt ends with `<|assistant|>`, and the model generates up to `<|end|>`. A model made
elsewhere has a format of its own in tokenizer.chat.

    <|endoftext|><|system|>Be kind.<|end|><|user|>Hello!<|end|><|assistant|>Hi!<|end|>

    >>> from gptcore.text.tokenizer import Tokenizer
    >>> tokenizer = Tokenizer({bytes([b]): b for b in range(256)})
    >>> render([{"role": "user", "content": "Hi"}], tokenizer, prompt=True)
    [256, 259, 72, 105, 261, 260]
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import cycle

import numpy as np

from gptcore.checks import TooLong, UserError, brief
from gptcore.text.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")
Message = dict[str, str]
# Returns the ids that an earlier reply was generated as, or None: (ids before, text) -> ids.
Recall = Callable[[list[int], str], list[int] | None]


def messages_of(turns: Iterable[str]) -> list[Message]:
    """Return messages for texts that the user and the assistant say in turn, the user first.

    >>> messages_of(["Hi", "Hello!"])
    [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello!'}]
    """
    roles = cycle(("user", "assistant"))
    return [{"role": role, "content": text} for role, text in zip(roles, turns)]


def check_messages(messages: list[Message]) -> None:
    """Raise UserError unless each message has a known role and a text as its content."""
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise UserError(f'message {i} is not of the form {{"role": ..., "content": ...}}')
        role, content = message["role"], message["content"]
        if role not in ROLES:
            known = ", ".join(ROLES)
            raise UserError(f"message {i} has the unknown role {brief(role)}: use {known}")
        if not isinstance(content, str):
            raise UserError(f"message {i} ({role}): its content is not text")
        if role == "system" and i > 0:
            raise UserError(f"message {i} has the role 'system': only the first message may")


def render(
    messages: list[Message],
    tokenizer: Tokenizer,
    *,
    prompt: bool = False,
    recall: Recall | None = None,
) -> list[int]:
    """Return the ids of a conversation; with `prompt`, followed by the opening of a reply.

    A reply that `recall` finds keeps the ids it was generated as. Decoding and encoding could
    split it differently, and then the cache of the conversation would not match. See
    check_messages for what messages are.
    """
    form, ids, text = tokenizer.chat, [], ""

    def write(template: str) -> None:
        """Append a template. Special tokens become ids; words wait and are encoded together."""
        nonlocal text
        for part in split_special(template, tokenizer):
            if part in tokenizer.special:
                ids.extend([*tokenizer.encode(text), tokenizer.special[part]])
                text = ""
            else:
                text += part

    has_system = bool(messages) and messages[0]["role"] == "system"
    write(form.opening if has_system else form.opening_alone)
    for message in messages:
        before, after = getattr(form, message["role"])
        write(before)
        content = message["content"].strip() if form.trims else message["content"]
        is_reply = message["role"] == "assistant"
        known = recall([*ids, *tokenizer.encode(text)], content) if recall and is_reply else None
        if known is None:
            text += content
        else:
            ids.extend([*tokenizer.encode(text), *known])
            text = ""
        write(after)
    write(form.prompt if prompt else "")
    return [*ids, *tokenizer.encode(text)]


def replies(
    messages: list[Message], tokenizer: Tokenizer
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the ids of a conversation, and where each reply is in them, as (start, stop).

    A reply is encoded by itself, as it would be generated, and includes the special token that
    ends it. See check_messages for what messages are.
    """
    spans = []

    def mark(before: list[int], text: str) -> list[int]:
        reply = tokenizer.encode(text)
        spans.append((len(before), len(before) + len(reply)))
        return reply

    ids = render(messages, tokenizer, recall=mark)
    if reply_end(tokenizer) is None:
        return ids, spans
    special = set(tokenizer.special.values())

    def end(stop: int) -> int:
        return next((i for i in range(stop, len(ids)) if ids[i] in special), stop - 1) + 1

    return ids, [(start, end(stop)) for start, stop in spans]


def reply_end(tokenizer: Tokenizer) -> int | None:
    """Return the id that ends a reply, or None if the format ends it by words alone."""
    return next(iter(special_ids(tokenizer.chat.assistant[1], tokenizer)), None)


def text_opening(tokenizer: Tokenizer) -> list[int]:
    """Return the ids that open a plain text."""
    return special_ids(tokenizer.chat.text, tokenizer)


def end_of_text(ids: list[int], opening: list[int], n: int) -> list[int]:
    """Return at most `n` ids of a text: its end, after what opens it, which many models need.

    >>> end_of_text([0, 1, 2, 3, 4], [0], 3)
    [0, 3, 4]
    """
    if len(ids) <= n:
        return ids
    kept = opening[: n - 1] if ids[: len(opening)] == opening else []
    return [*kept, *ids[len(ids) - n + len(kept) :]]


def special_ids(template: str, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the special tokens in a template."""
    parts = split_special(template, tokenizer)
    return [tokenizer.special[part] for part in parts if part in tokenizer.special]


def split_special(template: str, tokenizer: Tokenizer) -> list[str]:
    """Split a template into special tokens and the words between them."""
    return tokenizer.special_pattern.split(template)


def fit(
    messages: list[Message], tokenizer: Tokenizer, budget: int, recall: Recall | None = None
) -> tuple[list[int], int]:
    """Return a prompt of at most `budget` tokens and the number of old messages left out.

    The system message and the last message are always kept. Raises UserError if these alone are
    too long, if the last message is empty, or if a message is invalid. The last one need not be the
    user's: programs ask with a system message alone, or for one more reply after a reply.
    """
    check_messages(messages)
    if not messages:
        raise UserError("there is no message: send at least one")
    if not messages[-1]["content"].strip():
        raise UserError("the message is empty: type something first")
    for message in always_kept(messages):
        check_length(message["content"], tokenizer, budget, message["role"] + " message")
    ids, n_dropped = cut(messages, tokenizer, budget, prompt=True, recall=recall)
    if len(ids) > budget:
        raise TooLong(
            f"the message (with the system prompt) is too long: it needs {len(ids)} tokens and "
            f"{budget} fit; shorten it"
        )
    return ids, n_dropped


def always_kept(messages: list[Message]) -> list[Message]:
    """Return the system message, if there is one, and the last message."""
    return split_system(messages)[0] + messages[-1:]


def split_system(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Return the system message, if there is one, and the messages after it."""
    n_system = int(bool(messages) and messages[0]["role"] == "system")
    return messages[:n_system], messages[n_system:]


def cut(
    messages: list[Message],
    tokenizer: Tokenizer,
    limit: int,
    *,
    prompt: bool,
    recall: Recall | None = None,
) -> tuple[list[int], int]:
    """Return the ids of as much of a conversation as fits, and the number of old messages left out.

    The system message and the last message are always kept; only if these are too long are there
    more than `limit` ids.
    """
    system, turns = split_system(messages)

    def rendered(start: int) -> list[int]:
        return render(system + turns[start:], tokenizer, prompt=prompt, recall=recall)

    # Each message takes a token at least, and each token holds so many bytes: of a history of a
    # million messages, only the end is looked at. The fewer messages, the shorter the prompt, so
    # few prompts are tried. A conversation is cut only before a user message.
    first, n_left = len(turns), tokenizer.max_token_bytes * limit
    while first > max(len(turns) - limit, 0):
        n_left -= len(turns[first - 1]["content"])
        if n_left < 0:
            break
        first -= 1
    starts = [i for i in range(first, len(turns)) if i == 0 or turns[i]["role"] == "user"]
    at = bisect_left(starts, True, key=lambda start: len(rendered(start)) <= limit)
    start = starts[at] if at < len(starts) else max(len(turns) - 1, 0)
    return rendered(start), start


def check_length(text: str, tokenizer: Tokenizer, budget: int, name: str) -> None:
    """Raise UserError, without encoding, if a text has more characters than tokens can hold."""
    limit = tokenizer.max_token_bytes * budget
    if len(text) > limit:
        raise TooLong(
            f"the {name} is too long: it has {len(text):,} characters, and {budget} tokens hold at "
            f"most {limit:,}; shorten it"
        )


def loss_mask(ids: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """Return a mask (n,) of the ids (n,) that a model learns to predict.

    The mask of a token depends on the last special token before it. Plain text is learned after
    `<|endoftext|>` or at the beginning, and a reply after `<|assistant|>`, each with the special
    token that ends it. Nothing is learned after `<|system|>`, `<|user|>` and `<|end|>`, and role
    tokens are never learned. The mask follows from the ids, so it is not stored.

    The format of a model made elsewhere may open replies by words, which the ids do not tell from
    a user's: there the mask is True everywhere, and training/data/corpus.py says what is hidden.
    """
    ids = np.asarray(ids)
    if not tokenizer.is_ours:
        return np.ones(len(ids), bool)
    first_special = len(tokenizer.tokens)
    is_special = ids >= first_special
    index = np.arange(len(ids))
    # the index of the latest special token before each position; -1 if there is none
    before = np.maximum.accumulate(np.where(is_special, index, -1))
    before = np.concatenate([[-1], before[:-1]]) if len(ids) else before
    opener = np.where(before >= 0, ids[before], tokenizer.special["<|endoftext|>"])
    endoftext, assistant, end = (
        tokenizer.special[f"<|{name}|>"] for name in ("endoftext", "assistant", "end")
    )
    # np.isin would take thirty times as long as these two comparisons.
    is_learned = (opener == endoftext) | (opener == assistant)
    return is_learned & (~is_special | (ids == endoftext) | (ids == end))
