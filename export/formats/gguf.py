"""Writes a model folder as one .gguf file for llama.cpp, without torch.

>>> write_gguf(Path("models/nano"), Path("models/nano.gguf"))  # doctest: +SKIP

llama.cpp rotates neighbouring rows of a head together; gptcore rotates rows i and
i + head_dim / 2. The rows of the query and key matrices are therefore reordered.
"""

import json
from itertools import chain
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

from export.formats.hugging_face import recover_merges, rope_factors
from gptcore.bundle import (
    Bundle,
    TranslationBundle,
    check_whole,
    load_any_bundle,
    weight_files,
)
from gptcore.checks import UserError, check_choice
from gptcore.families import family
from gptcore.system.files import new_file
from gptcore.text.tokenizer import byte_to_unicode

FILE_TYPES = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16}
# llama.cpp's name for our pattern. The two differ only if a text ends in a line break followed by
# more white space: our pattern keeps these characters together.
PRE_TOKENIZER = "llama-bpe"


def write_gguf(folder: Path, path: Path, dtype: str = "f32") -> None:
    """Write a verified model folder as a GGUF file; `dtype` is "f32" or "f16".

    Raises UserError unless the model is a Llama whose tokenizer was trained by gptcore.
    """
    check_choice("dtype", dtype, FILE_TYPES)
    bundle = load_llama(folder)
    if path.is_dir():
        raise UserError(f"--out {path} is a folder: name a file, such as {path / 'model.gguf'}")
    try:
        with new_file(path) as temporary:
            writer = gguf.GGUFWriter(temporary, "llama")
            writer.add_file_type(FILE_TYPES[dtype])
            add_shape(writer, bundle)
            add_tokenizer(writer, bundle)
            for name, array in tensors(bundle).items():
                # llama.cpp requires the vectors of the norms in fp32.
                narrow = dtype == "f16" and array.ndim > 1
                writer.add_tensor(name, array.astype(np.float16) if narrow else array)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
    except OSError as error:  # numpy's error gives only the number of bytes written
        raise OSError(f"{path} cannot be written: {error}") from None


def load_llama(folder: Path) -> Bundle:
    """Load and verify a folder; raises UserError if llama.cpp cannot run the model or tokenizer."""
    bundle = load_any_bundle(folder)
    if isinstance(bundle, TranslationBundle):
        raise UserError(
            f"{folder} is a translation model: llama.cpp runs only decoders of Llama's shape"
        )
    is_plain = (folder / "config.json").is_file() and family(bundle.config) == "llama"
    if not is_plain or bundle.config.head_size or bundle.tokenizer.facts:
        raise UserError(
            f"{folder} is not of Llama's shape, or its tokenizer was not trained here: for a model "
            f"from Hugging Face use llama.cpp's own convert_hf_to_gguf.py"
        )
    check_whole(bundle)
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
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)


def add_tokenizer(writer: gguf.GGUFWriter, bundle: Bundle) -> None:
    tokenizer = bundle.tokenizer
    special = tokenizer.special
    char_of = byte_to_unicode()

    def written(token: bytes) -> str:
        return "".join(char_of[byte] for byte in token)

    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list([*map(written, tokenizer.tokens), *special])
    kinds = [gguf.TokenType.NORMAL] * len(tokenizer.tokens)
    writer.add_token_types(kinds + [gguf.TokenType.CONTROL] * len(special))
    merges = recover_merges(tokenizer.ranks)
    writer.add_token_merges([f"{written(a)} {written(b)}" for a, b in merges])
    writer.add_bos_token_id(special["<|endoftext|>"])
    writer.add_eos_token_id(special["<|end|>"])
    writer.add_eot_token_id(special["<|end|>"])
    writer.add_pad_token_id(special["<|pad|>"])
    writer.add_add_bos_token(not bundle.is_chat)  # the chat template already contains it
    if bundle.is_chat:
        settings = json.loads((bundle.path / "tokenizer_config.json").read_text(encoding="utf-8"))
        writer.add_chat_template(settings["chat_template"])


def tensors(bundle: Bundle) -> dict[str, np.ndarray]:
    """Return the weights by llama.cpp's names; without a head it uses the embedding for both."""
    config = bundle.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.n_layer)
    heads = {"q_proj": config.n_head, "k_proj": config.n_kv_head}
    result = {}
    for name, array in chain.from_iterable(load_file(f).items() for f in weight_files(bundle.path)):
        n_head = heads.get(name.split(".")[-2])
        array = interleaved(array, n_head) if n_head else array
        result[names[name.removesuffix(".weight")] + ".weight"] = array
    if config.position == "llama3_rotary":
        result["rope_freqs.weight"] = rope_factors(config)
    return result


def interleaved(array: np.ndarray, n_head: int) -> np.ndarray:
    """Interleave the rows of each head of (n_head * head_dim, C).

    Row i of the first half is then followed by row i of the second half.
    """
    halves = array.reshape(n_head, 2, -1, array.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
