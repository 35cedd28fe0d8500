"""Hugging Face's ZeroGPU: a Space on it must name a function for the GPU, or it is shut down.

The page computes on the CPU there: a GPU that comes and goes with each call cannot keep the
cache of a conversation.

>>> declare_gpu_function()      # nothing happens without the package `spaces`
"""


def declare_gpu_function() -> None:
    """Name one, where Hugging Face's package `spaces` is installed."""
    try:
        import spaces
    except ImportError:
        return
    spaces.GPU(gpu_function)


def gpu_function() -> None:
    """Is never called."""
