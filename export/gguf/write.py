"""Writes a model folder as one .gguf file for llama.cpp, without torch.

>>> write_gguf(Path("models/nano"), Path("models/nano.gguf"))  # doctest: +SKIP
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import MODEL_ARCH, LlamaFileType, TokenType
from safetensors import safe_open

from export.formats.hugging_face import recover_merges
from export.formats.model_folder import check_not_small, load_any_bundle, weight_files
from export.formats.pre_tokenizers import PRE_TOKENIZERS, pattern_of
from export.gguf.rotary import FACTORS, frequency_factors, interleaved
from gptcore.bundle import Bundle, TranslationBundle
from gptcore.checks import UserError, check_choice
from gptcore.families import family
from gptcore.system.files import new_file, read_json, work_folder
from gptcore.text.chat_template import reply_end
from gptcore.text.letters import to_letters
from gptcore.text.tokenizer import PATTERN, Tokenizer

OURS, HEAD_BYTES = "gptcore.written", 4096  # a key that stands in the beginning of our files
FILE_TYPES = {"f32": LlamaFileType.ALL_F32, "f16": LlamaFileType.MOSTLY_F16}
ARCHITECTURES = {"llama": MODEL_ARCH.LLAMA, "qwen2": MODEL_ARCH.QWEN2, "qwen3": MODEL_ARCH.QWEN3}
# llama.cpp's names for patterns. It and our own pattern differ only if a text ends in a line break
# followed by more white space: ours keeps these characters together.
PRE_NAMES = {PATTERN: "llama-bpe"} | {
    pattern_of({"pretokenizers": parts}): name for name, parts in PRE_TOKENIZERS.items()
}


def write_gguf(folder: Path, path: Path, dtype: str = "f32") -> None:
    """Write a verified model folder as a GGUF file; `dtype` is "f32" or "f16".

    Raises UserError unless the model is of a known family, and its tokenizer of a kind that
    llama.cpp has a name for; and if `path` is a file that this program did not write, as the one
    that a model was imported from.
    """
    check_choice("dtype", dtype, FILE_TYPES)
    bundle = load_model_for_llama_cpp(folder)
    if path.is_dir():
        raise UserError(f"--out {path} is a folder: name a file, such as {path / 'model.gguf'}")
    if path.is_file() and not is_ours(path):
        raise UserError(f"{path} exists and was not written by this command: choose another --out")
    writer = gguf.GGUFWriter(None, str(family(bundle.config)))
    writer.add_bool(OURS, True)
    writer.add_file_type(FILE_TYPES[dtype])
    add_shape(writer, bundle)
    add_tokenizer(writer, bundle)
    add_sampling(writer, bundle)
    for name, array in tensors(bundle, dtype):
        writer.add_tensor_info(name, array.shape, array.dtype, array.nbytes)
    try:
        with work_folder(path), new_file(path) as temporary, closing(writer):
            writer.write_header_to_file(temporary)
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for _, array in tensors(bundle, dtype):  # read again: one is in memory at a time
                writer.write_tensor_data(array)
    except OSError as error:  # numpy's error gives only the number of bytes written
        raise OSError(f"{path} cannot be written: {error}") from None


def is_ours(path: Path) -> bool:
    """Return whether write_gguf wrote a file."""
    with open(path, "rb") as file:
        return OURS.encode() in file.read(HEAD_BYTES)


def load_model_for_llama_cpp(folder: Path) -> Bundle:
    """Load and verify a folder; raises UserError if llama.cpp cannot run the model or tokenizer."""
    bundle = load_any_bundle(folder)
    if isinstance(bundle, TranslationBundle):
        raise UserError(
            f"{folder} is a translation model: llama.cpp runs only decoders of Llama's shape"
        )
    if not (folder / "config.json").is_file() or family(bundle.config) not in ARCHITECTURES:
        raise UserError(f"{folder} is not of Llama's shape or that of its kin: llama.cpp needs one")
    if bundle.tokenizer.pattern not in PRE_NAMES or bundle.tokenizer.kept is not None:
        raise UserError(
            f"{folder} has a tokenizer for which llama.cpp has no name: for a model from Hugging "
            f"Face use llama.cpp's own convert_hf_to_gguf.py"
        )
    if bundle.config.position == "llama3_rotary" and family(bundle.config) != "llama":
        raise UserError(
            f"{folder} has position=llama3_rotary, which llama.cpp has for Llamas alone"
        )
    check_not_small(bundle)
    return bundle


def add_shape(writer: gguf.GGUFWriter, bundle: Bundle) -> None:
    config = bundle.config
    writer.add_name(bundle.name)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.block_size)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.n_inner)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.n_kv_head)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)


def add_sampling(writer: gguf.GGUFWriter, bundle: Bundle) -> None:
    """Say what the model's makers recommend; llama.cpp takes it unless asked otherwise."""
    adds: dict[str, Callable[..., None]] = {
        "temperature": writer.add_sampling_temp,
        "top_k": writer.add_sampling_top_k,
        "top_p": writer.add_sampling_top_p,
        "min_p": writer.add_sampling_min_p,
        "repetition_penalty": writer.add_sampling_penalty_repeat,
    }
    for name, add in adds.items():
        if name in bundle.facts.sampling:
            add(bundle.facts.sampling[name])


def add_tokenizer(writer: gguf.GGUFWriter, bundle: Bundle) -> None:
    tokenizer = bundle.tokenizer
    tokens, kinds = vocabulary(tokenizer)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_NAMES[tokenizer.pattern])
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = recover_merges(tokenizer.ranks)
    writer.add_token_merges([f"{to_letters(a)} {to_letters(b)}" for a, b in merges])
    generation = bundle.path / "generation_config.json"
    ids = read_json(bundle.path / "config.json")
    if generation.is_file():
        ids |= read_json(generation)  # which has the last word in transformers
    end = first_id(ids.get("eos_token_id"))
    turn = reply_end(tokenizer) if bundle.is_chat else None
    for add, i in (
        (writer.add_bos_token_id, first_id(ids.get("bos_token_id"))),
        (writer.add_eos_token_id, end),
        (writer.add_eot_token_id, end if turn is None else turn),
        (writer.add_pad_token_id, first_id(ids.get("pad_token_id"))),
    ):
        if i is not None:
            add(i)
    # the chat template already contains it
    writer.add_add_bos_token(bool(tokenizer.chat.text) and not bundle.is_chat)
    if bundle.is_chat:
        settings = read_json(bundle.path / "tokenizer_config.json")
        writer.add_chat_template(settings["chat_template"])


def first_id(named: Any) -> int | None:
    """Return the id that a setting names, of several the first; a model elsewhere may name none."""
    first = next(iter(named), None) if isinstance(named, list) else named
    return first if type(first) is int and first >= 0 else None


def vocabulary(tokenizer: Tokenizer) -> tuple[list[str], list[TokenType]]:
    """Return the text of each id in llama.cpp's letters, and its type."""
    tokens = [to_letters(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)]
    kinds = [TokenType.NORMAL] * len(tokens)
    for name, i in tokenizer.special.items():
        # ids without a token are filled up (export.pretrained.tokenizer)
        is_unused = name == f"<|unused_{i}|>"
        tokens[i], kinds[i] = name, TokenType.UNUSED if is_unused else TokenType.CONTROL
    for name, i in tokenizer.added.items():
        tokens[i], kinds[i] = name, TokenType.USER_DEFINED
    return tokens, kinds


def tensors(bundle: Bundle, dtype: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the weights by llama.cpp's names; without a head it uses the embedding for both."""
    config, kind = bundle.config, str(family(bundle.config))
    names = gguf.get_tensor_name_map(ARCHITECTURES[kind], config.n_layer)
    heads = {"q_proj": config.n_head, "k_proj": config.n_kv_head} if kind == "llama" else {}
    for path in weight_files(bundle.path):
        with safe_open(path, "np") as file:
            for name in sorted(file.keys()):
                array, (stem, _, part) = file.get_tensor(name), name.rpartition(".")
                n_head = heads.get(stem.rpartition(".")[2])
                array = interleaved(array, n_head) if n_head else array
                # llama.cpp requires vectors, such as those of the norms, in fp32.
                narrow = dtype == "f16" and array.ndim > 1
                yield f"{names[stem]}.{part}", halved(name, array) if narrow else array
    if config.position == "llama3_rotary":
        yield FACTORS, frequency_factors(config)


def halved(name: str, array: np.ndarray) -> np.ndarray:
    """Return a tensor in fp16; raises UserError if a weight would become infinite."""
    most, largest = np.finfo(np.float16).max, np.abs(array).max()
    if not (largest <= most):
        raise UserError(
            f"--dtype f16 holds no more than {most:,.0f}, and {name} has {largest:,.0f}: choose f32"
        )
    return array.astype(np.float16)
