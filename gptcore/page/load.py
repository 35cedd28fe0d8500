"""What a page shows, loaded as the options of its command say.

>>> models, translator, bench = load_page(options, trains=False)       # doctest: +SKIP
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gptcore.system.runtime import check_runtime

if TYPE_CHECKING:
    from gptcore.models import Models
    from gptcore.page.train.workbench import Workbench
    from gptcore.translation.onnx import OnnxTranslator


def load_page(
    options: argparse.Namespace, trains: bool, is_shared: bool = False
) -> tuple["Models", "OnnxTranslator | None", "Workbench | None"]:
    """Return the models, the translator if one is named, and Train's workbench if it is offered.

    Raises UserError if a folder cannot be used, or ONNX Runtime is missing.
    """
    check_runtime()
    from gptcore.models import MODELS, load_models
    from gptcore.page.train.workbench import Workbench
    from gptcore.translation.onnx import load_translator

    models = load_models(options, is_shared)
    translator = load_translator(options.translate) if options.translate else None
    bench = Workbench(Path("runs"), options.models or MODELS, models.add) if trains else None
    return models, translator, bench
