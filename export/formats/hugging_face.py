"""The configuration files that other runtimes read: Hugging Face's and onnxruntime-genai's.

>>> from gptcore.config import PRESETS
>>> transformers_config(PRESETS["nano"], {"eos_token_id": [7]})["model_type"]
'llama'
"""

import json
from pathlib import Path
from typing import Any

from gptcore.config import ModelConfig
from gptcore.engine.sampling import SETTINGS
from gptcore.families import CLASSES, family
from gptcore.system.files import read_object
from gptcore.text.chat_format import ChatFormat
from gptcore.text.chat_template import ROLES
from gptcore.text.letters import to_letters
from gptcore.text.tokenizer import PORTABLE_PATTERN, SPECIAL_TOKENS, Tokenizer

# The template gives the prompt of gptcore.text.chat_template.render, but for a `<|` that a user
# typed: it is broken up, since other runtimes parse special tokens in the rendered text. (`split`
# and `join` replace `replace`, which onnxruntime-genai's Jinja lacks.)
CHAT_TEMPLATE = (
    "{{ '<|endoftext|>' }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' }}"
    "{{ message['content'].split('<|') | join('< |') }}"
    "{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def chat_template_of(form: ChatFormat) -> str:
    """Return the chat template of export.pretrained.tokenizer.learnable_format.

    There every conversation is opened alike, one token ends each message, and nothing is trimmed.
    That token is broken up where a user typed it, as in CHAT_TEMPLATE.
    """
    end = form.assistant[1].strip()
    content = f"{{{{ message['content'].split({end!r}) | join({end[:1] + ' ' + end[1:]!r}) }}}}"
    turns = "".join(
        f"{{% if message['role'] == {role!r} %}}"
        f"{{{{ {before!r} }}}}{content}{{{{ {after!r} }}}}{{% endif %}}"
        for role, (before, after) in zip(ROLES, (form.system, form.user, form.assistant))
    )
    return (
        f"{{{{ {form.opening!r} }}}}{{% for message in messages %}}{turns}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{{{{ {form.prompt!r} }}}}{{% endif %}}"
    )


def template_with_system(template: str, message: str) -> str:
    """Return a template that begins a conversation without a system message with this one.

    Without a message it is the given one.
    """
    if not message:
        return template
    first = f"[{{'role': 'system', 'content': {json.dumps(message, ensure_ascii=False)}}}]"
    return (
        f"{{% if not messages or messages[0]['role'] != 'system' %}}"
        f"{{% set messages = {first} + messages %}}{{% endif %}}{template}"
    )


TokenIds = dict[str, Any]  # bos_token_id, eos_token_id, pad_token_id


def transformers_config(config: ModelConfig, ids: TokenIds) -> dict[str, Any]:
    """Return config.json of transformers' class with our model's shape."""
    rope, name = rope_parameters(config), family(config)
    assert name is not None, "no class of transformers holds this shape"
    return {
        "architectures": [CLASSES[name]],
        "model_type": name,
        "vocab_size": config.vocab_size,
        "hidden_size": config.n_embd,
        "intermediate_size": config.n_inner,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_kv_head,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.block_size,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": rope,
        "rope_scaling": None if rope["rope_type"] == "default" else rope,  # for transformers 4
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": config.tied_embeddings,
        "use_cache": True,
        "torch_dtype": "float32",
        **ids,
    }


def rope_parameters(config: ModelConfig) -> dict[str, Any]:
    """Return rope_parameters; export.pretrained.config.read_rope does the inverse."""
    base = {"rope_type": "default", "rope_theta": config.rope_theta}
    if config.position != "llama3_rotary":
        return base
    return base | {
        "rope_type": "llama3",
        "factor": config.rope_factor,
        "low_freq_factor": config.rope_slow,
        "high_freq_factor": config.rope_fast,
        "original_max_position_embeddings": config.rope_context,
    }


def token_ids(special: dict[str, int]) -> TokenIds:
    """Return the ids of our special tokens by the names that other runtimes use."""
    return {
        "bos_token_id": special["<|endoftext|>"],
        "eos_token_id": [special["<|end|>"], special["<|endoftext|>"]],
        "pad_token_id": special["<|pad|>"],
    }


def generation_config(ids: TokenIds) -> dict[str, Any]:
    return {
        **ids,
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 50,
        "max_new_tokens": 256,
    }


def recommended_sampling(folder: Path) -> dict[str, float]:
    """Return what generation_config.json recommends to sample with, if a folder has one.

    Values out of our range are left out; a repetition penalty is ours, of the reply alone.
    """
    path = folder / "generation_config.json"
    content = read_object(path) if path.is_file() else {}
    if not content.get("do_sample"):
        return {}
    found = {}
    for setting in SETTINGS:
        value = content.get(setting.name)
        if setting.name == "seed" or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if setting.lowest <= value <= setting.highest:
            found[setting.name] = int(value) if setting.is_whole else value
    return found


def genai_config(config: ModelConfig, ids: TokenIds) -> dict[str, Any]:
    """Return genai_config.json for onnxruntime-genai."""
    decoder = {
        "session_options": {"provider_options": []},
        "filename": "onnx/model.onnx",
        "head_size": config.head_dim,
        "hidden_size": config.n_embd,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_kv_head,
        "num_hidden_layers": config.n_layer,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "position_ids": "position_ids",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    search = {
        "do_sample": False,
        "max_length": config.block_size,
        "past_present_share_buffer": False,
    }
    model = {
        "type": family(config),
        "vocab_size": config.vocab_size,
        "context_length": config.block_size,
        **ids,
        "decoder": decoder,
    }
    return {"model": model, "search": search}


def tokenizer_config(config: ModelConfig, is_chat: bool, usual_system: str = "") -> dict[str, Any]:
    """Return tokenizer_config.json; a base model's has no chat template.

    `usual_system`: the system message of chats that bring none, or "".
    """
    result = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.block_size,
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
        **special_tokens_map(),
    }
    template = template_with_system(CHAT_TEMPLATE, usual_system)
    return result | ({"chat_template": template} if is_chat else {})


def special_tokens_map() -> dict[str, str]:
    return {"bos_token": "<|endoftext|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}


def write_tokenizer_json(tokenizer: Tokenizer, path: Path, is_chat: bool = True) -> None:
    """Write tokenizer.json; a base model's opens each text, as a chat template opens conversations.

    The merges are recovered from the ranks, so that `tokenizers` gives the same ids as tiktoken.
    """
    from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors
    from tokenizers import Tokenizer as Fast

    vocab = {to_letters(token): rank for token, rank in tokenizer.ranks.items()}
    merges = [(to_letters(a), to_letters(b)) for a, b in recover_merges(tokenizer.ranks)]
    fast = Fast(models.BPE(vocab=vocab, merges=merges))
    split = pre_tokenizers.Split(Regex(PORTABLE_PATTERN), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken(name, normalized=False) for name in SPECIAL_TOKENS])
    if not is_chat:
        opening = tokenizer.chat.text
        fast.post_processor = processors.TemplateProcessing(
            single=f"{opening} $A",
            pair=f"{opening} $A $B",
            special_tokens=[(opening, tokenizer.special[opening])],
        )
    fast.save(str(path))


def recover_merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Return for each token the two parts that were merged into it.

    They are the parts that remain when the token's bytes are merged by lower ranks only.
    """
    tokens = sorted((t for t in ranks if len(t) > 1), key=ranks.__getitem__)
    return [bpe_parts(ranks, token) for token in tokens]


def bpe_parts(ranks: dict[bytes, int], token: bytes) -> tuple[bytes, bytes]:
    parts = [token[i : i + 1] for i in range(len(token))]

    def rank(at: int) -> int:
        return ranks.get(parts[at] + parts[at + 1], len(ranks))

    # After a merge only the pairs beside it are new: a file can hold tokens of thousands of bytes.
    pairs = [rank(at) for at in range(len(parts) - 1)]
    while len(parts) > 2:
        at = pairs.index(min(pairs))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del pairs[at]
        for near in range(max(at - 1, 0), min(at + 1, len(pairs))):
            pairs[near] = rank(near)
    return parts[0], parts[1]
