"""Imports Gradio without the type stubs that it writes for editors beside its own files.

It writes them in every process that imports it (gradio/component_meta.py), which takes more than a
third of the import's time; of a class whose file it does not find it writes none.
"""

import inspect


def import_gradio() -> None:
    """Import Gradio without its stubs; later imports find it loaded."""
    getfile = inspect.getfile
    inspect.getfile = find_nothing  # type: ignore[assignment]
    try:
        import gradio  # noqa: F401
    finally:
        inspect.getfile = getfile


def find_nothing(_: object) -> str:
    """Raise OSError, as inspect.getfile does for an object that has no file."""
    raise OSError
