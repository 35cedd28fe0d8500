"""Writes a training run as a model folder, which gets its name only when it is verified.

>>> target = Target(Path("models/mine"), "mine", Hub())              # doctest: +SKIP
>>> export_run(Run.load("runs/mine"), target)                        # doctest: +SKIP
"""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from export.folder.card import LOSS, UNNAMED, Hub, read_hub, write_card
from export.folder.copy import copy_files
from export.folder.replace import check_model_folder
from export.folder.serving import write_serving_graphs
from export.folder.transformers_js import tell_transformers_js
from export.folder.variants import FittingTexts, Row, add_variants, calibration_rows, compared_rows
from export.formats.graph import MOST_BYTES
from export.formats.hugging_face import (
    chat_template_of,
    genai_config,
    generation_config,
    recommended_sampling,
    special_tokens_map,
    template_with_system,
    token_ids,
    tokenizer_config,
    transformers_config,
    write_tokenizer_json,
)
from export.formats.inspection import write_inspect, write_untrained
from export.formats.to_onnx import write_decoder
from export.formats.translation_to_onnx import write_translator
from export.formats.weights import write_decoder_weights, write_weights
from export.verify.decoder import load_reference, verify
from export.verify.inspection import compare_inspect
from export.verify.report import TOLERANCE, logits_limit, require_passed
from export.verify.translation import verify_translation
from gptcore.bundle import (
    FACTS,
    INSPECT,
    ONNX,
    SOURCE_TOKENIZER,
    UNTRAINED,
    Bundle,
    TranslationBundle,
    add_files,
    load_bundle,
    read_facts,
    write_facts,
)
from gptcore.checks import UserError
from gptcore.config import Seq2SeqConfig
from gptcore.facts import Check, ModelFacts, Start, Training
from gptcore.families import family
from gptcore.nn import build_model, count_parameters
from gptcore.nn.checkpoint import Checkpoint, load_weights
from gptcore.nn.gpt import GPT
from gptcore.nn.seq2seq import Seq2Seq
from gptcore.system.files import file_sha256, new_file, new_folder, read_json, write_json
from gptcore.text.chat_format import ChatFormat
from gptcore.text.tokenizer import Tokenizer
from training.machine.memory import free_memory
from training.machine.progress import waiting
from training.run.base import FAMILY, FAMILY_FILES, base_file, whole_weights
from training.run.directory import Run

CHANGED = ("config.json", "genai_config.json", "tokenizer_config.json")  # files of a family

INSPECT_PARAMETERS = 50_000_000  # Inspect's graph of more takes minutes, and 0.2 GB and more
INT8_COPIES = 5  # of the fp32 weights, which ONNX Runtime's quantizer holds at once, about


class Target(NamedTuple):
    """The model folder to write, and what it is to have."""

    out: Path
    name: str
    hub: Hub
    formats: Sequence[str] = ()  # smaller files to add, see export.quantize.save
    force: bool = False  # keep those that are much worse
    inspect: bool = False  # add Inspect's graphs, if there are at most INSPECT_PARAMETERS


def export_run(run: Run, target: Target) -> list[Check]:
    """Write and verify a model folder from a run's best checkpoint; return what was compared.

    Raises UserError if the verification fails, and leaves `target.out` unchanged.
    """
    out = target.out
    if target.formats and isinstance(run.model, Seq2SeqConfig):
        raise UserError("--quantize is for decoders: a translation model is exported in fp32 only")
    if not run.is_settled:
        then = "still runs" if run.is_training else "is not complete; it can go on with --resume"
        print(f"note: the training in {run.path} {then}")
    model: GPT | Seq2Seq = build_model(run.model)
    parameters = count_parameters(model)
    # Before the weights are read: the shards that it needs may be gone.
    smaller = smaller_of(run, parameters) if target.formats else None
    checkpoint = run.best_checkpoint()
    load_weights(model, whole_weights(run, checkpoint), checkpoint.path)
    facts = facts_of(run, checkpoint, target.name, parameters)
    kept = checkpoint.facts.get("kept")
    mixed = f" (with {kept:.0%} of the weights before the training)" if kept else ""

    def write(folder: Path) -> list[Check]:
        print(f"exporting {checkpoint.path}{mixed} to {out}{', which is replaced' * out.exists()}")
        if facts.loss_curve:
            shutil.copyfile(run.path / LOSS, folder / LOSS)
        if isinstance(model, Seq2Seq):
            return export_translator(run, model, folder, facts)
        return export_decoder(run, model, folder, facts)

    return write_verified(target, facts, write, smaller)


def facts_of(run: Run, checkpoint: Checkpoint, name: str, parameters: int) -> ModelFacts:
    """Return the facts of a run's model as far as they are known before it is verified."""
    step = checkpoint.facts["step"]
    took = {key: run.summary()[key] for key in ("tokens", "seconds") if run.is_complete}
    return ModelFacts(
        name=name,
        chat=run.data.chat,
        parameters=parameters,
        config=run.model,
        training=Training(step, run.data.text, run.train.to_dict(), **took),
        measured=measured(run, step),
        imported=run.base.imported if run.base else None,
        start=start_of(run),
        sampling=recommended_sampling(run.path / FAMILY),
        loss_curve=(run.path / LOSS).is_file(),
        examples=run.data.examples,
    )


def start_of(run: Run) -> Start | None:
    """Return which model a run began with, unless the facts name it elsewhere.

    Its licence is known as long as its folder is there, unchanged.
    """
    if not run.base or not run.base.name or run.base.imported or run.data.stages:
        return None
    file = base_file(run)
    is_there = file.is_file() and file_sha256(file) == run.base.sha256
    folders = (folder for folder in file.parents if is_there and (folder / FACTS).is_file())
    licence = next((read_hub(folder).license for folder in folders), UNNAMED)
    return Start(run.base.name, "" if licence == UNNAMED else licence)


class Smaller(NamedTuple):
    """What smaller files are measured on and fitted to."""

    rows: Iterable[Row]
    tokenizer: Tokenizer
    fitting_texts: FittingTexts


def smaller_of(run: Run, parameters: int) -> Smaller:
    rows = calibration_rows(run)
    return Smaller(compared_rows(run, parameters), run.tokenizer, lambda graph: rows)


def write_verified(
    target: Target,
    facts: ModelFacts,
    write: Callable[[Path], list[Check]],
    smaller: Smaller | None,
) -> list[Check]:
    """Fill the folder `target.out` by calling `write`, then add smaller files, card and facts.

    It has the Inspect tab's graphs if the folder that it replaces has them, too.
    Return the checks, none of which failed; raises UserError if one fails.
    """
    check_model_folder(target.out, facts)
    if "int8" in target.formats:
        check_memory(facts.parameters)
    with new_folder(target.out) as folder:
        checks = write(folder)
        different = f"the exported graph differs from the model: {target.out} was not written"
        require_passed(checks, different)
        if smaller:
            rows, tokenizer, fitting_texts = smaller
            added = add_variants(
                folder, target.formats, rows, tokenizer, target.force, fitting_texts
            )
            facts = replace(facts, variants=added)
        variants = facts.variants or ["fp32"]
        tell_transformers_js(folder, variants)
        if not isinstance(facts.config, Seq2SeqConfig):
            limit = logits_limit(checks)
            checks += write_serving_graphs(folder, facts.config, variants, limit)
        facts = replace(facts, parity=tuple(checks))
        write_card(folder / "README.md", facts, target.hub)
        write_facts(folder, facts)
        is_asked = target.inspect and facts.parameters <= INSPECT_PARAMETERS
        had_inspect = target.out.exists() and INSPECT in read_facts(target.out).sha256
        if (is_asked or had_inspect) and not isinstance(facts.config, Seq2SeqConfig):
            add_inspect(folder)
        check_model_folder(target.out, facts)  # again: a person may have put something there since
    return checks


def check_memory(n_parameters: int) -> None:
    """Raise UserError if making an int8 file needs more memory than is free."""
    needed, free = 4 * INT8_COPIES * n_parameters, free_memory(torch.device("cpu"))
    if needed > free:
        raise UserError(
            f"--quantize int8 needs {needed / 1e9:,.1f} GB of memory for this model, and "
            f"{free / 1e9:,.1f} are free: take q8, which needs a quarter"
        )


def export_decoder(run: Run, model: GPT, folder: Path, facts: ModelFacts) -> list[Check]:
    write_model(model, run.tokenizer, facts.chat, folder)
    write_family(run, folder)
    return verify(Bundle(folder, run.model, run.tokenizer, facts))


def export_translator(run: Run, model: Seq2Seq, folder: Path, facts: ModelFacts) -> list[Check]:
    source_tokenizer = Tokenizer.load(run.path / SOURCE_TOKENIZER)
    write_translation_model(model, source_tokenizer, run.tokenizer, folder)
    bundle = TranslationBundle(folder, model.config, run.tokenizer, facts, source_tokenizer)
    return verify_translation(bundle)


def write_model(model: GPT, tokenizer: Tokenizer, is_chat: bool, folder: Path) -> None:
    """Write graph, weights and tokenizer; for a Llama also the files of other runtimes."""
    config = model.config
    write_graph_and_weights(model, tokenizer, folder)
    # Those files cannot express a tokenizer that has a pattern or ids of its own.
    if not family(config) or not tokenizer.has_our_ids:
        return
    ids, usual_system = token_ids(tokenizer.special), tokenizer.chat.usual_system
    write_tokenizer_json(tokenizer, folder / "tokenizer.json", is_chat)
    for name, content in (
        ("config.json", transformers_config(config, ids)),
        ("generation_config.json", generation_config(ids)),
        ("genai_config.json", genai_config(config, ids)),
        ("tokenizer_config.json", tokenizer_config(config, is_chat, usual_system)),
        ("special_tokens_map.json", special_tokens_map()),
    ):
        write_json(folder / name, content)


def write_family(run: Run, folder: Path) -> None:
    """Copy the files by which other runtimes know a model made elsewhere, if a run has them.

    A base model that was taught conversations gets a chat template.
    """
    source = run.path / FAMILY
    names = [n for n in FAMILY_FILES if n != "README.md" and (source / n).is_file()]
    copy_files(source, folder, names)
    found = {name: read_json(source / name) for name in CHANGED if name in names}
    if content := found.get("config.json"):
        content["max_position_embeddings"] = run.model.block_size  # maybe shortened
    if content := found.get("genai_config.json"):  # of a shipped base, it names a smaller file
        ids = {key: i for key, i in content["model"].items() if key.endswith("_token_id")}
        found["genai_config.json"] = genai_config(run.model, ids)
    if content := found.get("tokenizer_config.json"):
        content["model_max_length"] = run.model.block_size
        if run.data.chat and not content.get("chat_template"):
            content["chat_template"] = chat_template_of(run.tokenizer.chat)
        if template := content.get("chat_template"):
            content["chat_template"] = own_template(template, run.tokenizer.chat)
    for name, content in found.items():
        write_json(folder / name, content)


def own_template(template: str, form: ChatFormat) -> str:
    """Return a family's chat template with the system message that nearly all learned chats had.

    The family's own, such as Qwen2.5's, stands in the template already.
    """
    written = json.dumps(form.opening_alone, ensure_ascii=False)[1:-1]
    return template if written in template else template_with_system(template, form.usual_system)


@waiting("writing the graph and the weights")
def write_graph_and_weights(model: GPT, tokenizer: Tokenizer, folder: Path) -> None:
    (folder / ONNX).parent.mkdir()
    write_decoder(model, folder / ONNX)
    tokenizer.save(folder)
    write_decoder_weights(dict(model.named_parameters()), model.config, folder)


@waiting("writing the graphs")
def write_translation_model(
    model: Seq2Seq, source_tokenizer: Tokenizer, tokenizer: Tokenizer, folder: Path
) -> None:
    """Write three graphs (one is for the Inspect tab), the weights and both tokenizers."""
    (folder / ONNX).parent.mkdir()
    write_translator(model, (folder / ONNX).parent)
    write_checked_inspect(model, folder / INSPECT, TOLERANCE)
    write_weights(model.named_parameters(), folder)
    tokenizer.save(folder)
    source_tokenizer.save(folder / SOURCE_TOKENIZER)


def measured(run: Run, step: int) -> dict[str, Any]:
    """Return what the last evaluation up to this step says of the model, if there was one."""
    evaluations = [m for m in run.metrics() if "bits_per_byte" in m and m["step"] <= step]
    return run.data.telling(evaluations[-1]) if evaluations else {}


@waiting("writing and comparing the graphs")
def add_inspect(folder: Path) -> None:
    """Add the page's Inspect graphs to a decoder's folder: inspect.onnx and untrained.onnx.

    Raises UserError if the model is too large for a graph that is one file.
    """
    bundle = load_bundle(folder)
    if 4 * bundle.facts.parameters > MOST_BYTES:
        raise UserError(
            f"{folder} has {bundle.facts.parameters:,} parameters: Inspect takes at most "
            f"{MOST_BYTES // 4:,} parameters"
        )
    with ExitStack() as files:  # they get their names together: gptcore.json lists both or none
        path = files.enter_context(new_file(folder / INSPECT))
        write_checked_inspect(load_reference(bundle), path, logits_limit(bundle.facts.parity))
        untrained = files.enter_context(new_file(folder / UNTRAINED))
        write_untrained(bundle.config, path, untrained)
    add_files(folder, [INSPECT, UNTRAINED])


def write_checked_inspect(model: GPT | Seq2Seq, path: Path, limit: float) -> None:
    """Write the Inspect tab's graph to `path`; raises UserError if it is not the model.

    `limit`: the largest difference from PyTorch that is allowed, which rounds some models more.
    """
    write_inspect(model, path)
    worst = compare_inspect(model, path)
    if not (worst <= limit):
        raise UserError(
            f"{INSPECT} was not written: it differs from PyTorch by {worst:.2g}, and {limit:.2g} "
            f"is allowed"
        )
    print(f"{Path(INSPECT).name} differs from PyTorch by {worst:.2g} at most")
