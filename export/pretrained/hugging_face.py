"""Converts a Hugging Face Llama: python -m export --from-hf DIR --out models/NAME.

The weights are unchanged. The tokenizer's files are copied, and converted to a tokenizer of our
own, which must give the same ids.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from export.folder.variants import FLOPS, Row, row_tokens, text_rows
from export.folder.write import Smaller, Target, write_graph_and_weights, write_verified
from export.formats.hugging_face import genai_config, recommended_sampling
from export.formats.pre_tokenizers import explicit
from export.formats.weights import Weights
from export.pretrained.config import BIASES, read_config
from export.pretrained.tokenizer import (
    chat_template,
    generation_settings,
    read_settings,
    read_tokenizer,
)
from export.quantize.own_texts import own_texts
from export.verify.decoder import verify
from gptcore.bundle import Bundle
from gptcore.checks import UserError, shorten
from gptcore.config import ModelConfig
from gptcore.facts import Check, Imported, ModelFacts
from gptcore.families import family
from gptcore.nn import build_model, count_parameters
from gptcore.nn.checkpoint import model_of
from gptcore.nn.llama import from_llama, to_llama
from gptcore.system.files import check_links, write_json
from gptcore.text.tokenizer import Tokenizer
from training.data.corpus import document_ids, document_text, read_documents
from training.dialogues.generator import dialogues
from training.formats.places import find_files
from training.machine.memory import free_memory
from training.machine.progress import waiting

N_MEASURED = 60  # number of documents for the measurements
POSITION_COPIES = 3  # of the tables of positions while they are made, which is done in float64
LEAST_MEASURED = 4096  # tokens of them, however large the model is
SPECIAL = "special_tokens_map.json"
# Keys of config.json that ask for another program, or change what the class returns.
ELSEWHERE = ("_attn_implementation", "attn_implementation", "return_dict")


def export_pretrained(
    source: Path,
    target: Target,
    text: Path | None,
    context: int | None,
    origin: str,
) -> list[Check]:
    """Write and verify a model folder from one in Hugging Face's format.

    Bits per byte are measured on `text`, or else on the project's own dialogues; `context` limits
    the model's context; `origin` names its source, or is "" if the folder's name does.
    Raises UserError naming what is not supported.
    """
    settings = read_settings(source / "config.json")
    check_links(source)
    config = read_config(settings, source / "config.json", context)
    tokenizer = read_tokenizer(source, config.vocab_size)
    template, _ = chat_template(source)
    with torch.device("meta"):
        shape = build_model(config)  # without values: only one model is in memory at a time
    named = to_llama(shape.state_dict(), config)
    weights = read_weights(source, set(named))
    check_shapes(weights, named, source)
    imported = Imported(origin or known_name(source), measured_on=text.name if text else OWN)
    check_positions(shape, config, source)
    n_parameters = count_parameters(shape)
    facts = ModelFacts(
        target.name,
        template is not None,
        n_parameters,
        config,
        imported=imported,
        sampling=recommended_sampling(source),
    )

    def write(folder: Path) -> list[Check]:
        with waiting("reading the weights"):
            model = model_of(config, from_llama(weights, config), source)
        write_graph_and_weights(model, tokenizer, folder)
        del model
        write_config(settings, config, tokenizer, source, folder)
        return verify(Bundle(folder, config, tokenizer, facts))

    length = row_tokens(config)
    n_measured = max(LEAST_MEASURED, int(FLOPS / (2 * n_parameters)))
    rows = first_rows(measured_rows(tokenizer, facts.chat, text, length), n_measured)
    fitting_texts = partial(own_texts, config=config, tokenizer=tokenizer, is_chat=facts.chat)
    return write_verified(target, facts, write, Smaller(rows, tokenizer, fitting_texts))


def check_shapes(weights: Weights, named: Mapping[str, Tensor], source: Path) -> None:
    """Raise UserError if a tensor has another shape than config.json says.

    Several are joined when they are read: two that are wrong could be of the right size together.
    """
    for name, tensor in named.items():
        if (found := weights.shape(name)) != (wanted := tuple(tensor.shape)):
            raise UserError(
                f"{source}: the weights do not match config.json: {name} has the shape {found}, "
                f"where {wanted} is needed: correct config.json, or fetch the folder again"
            )


def check_positions(shape: nn.Module, config: ModelConfig, source: Path) -> None:
    """Raise UserError if the tables of the positions need more memory than is free.

    How long they are, a few digits of config.json say.
    """
    needed = POSITION_COPIES * sum(table.nbytes for table in shape.buffers())
    free = free_memory(torch.device("cpu"))
    if needed > free:
        raise UserError(
            f"{source / 'config.json'}: a context of {config.block_size} tokens needs "
            f"{needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} are free: choose a smaller "
            f"--context (without one it is max_position_embeddings)"
        )


def known_name(folder: Path) -> str:
    """Return the name of the model in a folder; in the Hub's cache that is OWNER/NAME."""
    place = folder.resolve()
    if place.parent.name == "snapshots":  # models--OWNER--NAME/snapshots/COMMIT
        return place.parents[1].name.removeprefix("models--").replace("--", "/", 1)
    return place.name


OWN = "the project's own dialogues"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def read_weights(source: Path, needed: set[str]) -> Weights:
    """Return the weights, which are not yet read; raises UserError if others are needed."""
    tensors = Weights(source)
    # a tied head may be stored a second time, and old files contain the rotary frequencies
    others = {n for n in tensors if n == HEAD or n.endswith("rotary_emb.inv_freq")}
    wrong = needed ^ (set(tensors) - (others - needed))
    if wrong:
        raise UserError(
            f"{source}: the weights do not match config.json, {len(wrong)} tensors are "
            f"superfluous or missing, such as {shorten(min(wrong))}"
        )
    if HEAD in others - needed and not tensors[HEAD].equal(tensors[EMBEDDING]):
        raise UserError(
            f"{source}: tie_word_embeddings is true, but {HEAD} is not the embedding: write "
            f"false into config.json if the head is meant"
        )
    return tensors


def write_config(
    settings: dict[str, Any], config: ModelConfig, tokenizer: Tokenizer, source: Path, folder: Path
) -> None:
    """Write the files for other runtimes."""
    tokens = read_settings(source / "tokenizer.json")
    tokens["pre_tokenizer"] = explicit(tokens["pre_tokenizer"])
    for token in tokens["added_tokens"]:  # what is special here stays text there, too
        token["special"] = token["content"] in tokenizer.special
    tokens |= {"padding": None, "truncation": None}
    text = json.dumps(tokens, indent=1, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8", newline="\n")
    if (source / SPECIAL).exists():
        shutil.copyfile(source / SPECIAL, folder / SPECIAL)
    template, _ = chat_template(source)
    path = source / "tokenizer_config.json"
    tokens = read_settings(path) if path.exists() else {}
    # a class of its own, such as GPT2Tokenizer, would split by its own rules, not by the file's
    tokens |= {"tokenizer_class": "PreTrainedTokenizerFast", "padding_side": "left"}
    tokens |= {"model_max_length": config.block_size}
    tokens |= {"chat_template": template} if template else {}
    generation = source / "generation_config.json"
    given = generation_settings(source)
    eos = given.get("eos_token_id")
    first_eos = next(iter(eos), None) if isinstance(eos, list) else eos
    ids = {"eos_token_id": eos} | {
        key: first_eos if given.get(key) is None else given[key]
        for key in ("bos_token_id", "pad_token_id")
    }
    # onnxruntime-genai cannot read a null
    ids = {key: value for key, value in ids.items() if value not in (None, [])}
    ours: dict[str, Any] = {"max_position_embeddings": config.block_size}
    ours |= {"model_type": family(config)}  # which some files leave out
    ours |= {"dtype": "float32", "torch_dtype": "float32"}  # new and old name
    # transformers takes no null for these, and looks for what another program has installed.
    ours |= {name: False for name in BIASES if name in settings}
    settings = {name: settings[name] for name in settings if name not in ELSEWHERE}
    for name, content in (
        ("tokenizer_config.json", tokens),
        ("config.json", settings | ours),
        ("generation_config.json", read_settings(generation) if generation.exists() else ids),
        (
            "genai_config.json",
            genai_config(config, ids | padding(ids, tokenizer)),
        ),
    ):
        content.pop("auto_map", None)  # names code that its reader would be asked to trust
        write_json(folder / name, content)


def padding(ids: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """Return as pad_token_id a token that no prompt contains, if there is one.

    SmolLM2's and others' ends a message, too. onnxruntime-genai hides the padding token wherever it
    stands, and fails at a prompt that contains it.
    """
    written = str(tokenizer.chat)
    free = [i for name, i in tokenizer.special.items() if name not in written]
    return {"pad_token_id": free[0]} if free and ids.get("pad_token_id") not in free else {}


def first_rows(rows: Iterable[Row], n_tokens: int) -> list[Row]:
    """Return as many first rows as have `n_tokens` tokens in total, or all if they have fewer."""
    found: list[Row] = []
    n_left = n_tokens
    for ids, targets in rows:
        if n_left <= 0:
            break
        found.append((ids, targets))
        n_left -= len(ids)
    return found


def measured_rows(
    tokenizer: Tokenizer,
    is_chat: bool,
    text: Path | None,
    length: int,
) -> Iterable[Row]:
    """Return rows of `length` tokens at most, on which bits per byte are measured."""
    documents = read_documents(find_files([text])) if text else dialogues(0)
    some = islice(documents, N_MEASURED)
    known = some if is_chat else map(document_text, some)  # a base model has no conversations
    return text_rows((document_ids(document, tokenizer) for document in known), length)
