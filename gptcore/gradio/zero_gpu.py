"""Hugging Face's ZeroGPU shuts down a Space that does not declare a function for the GPU.

The page computes on the CPU there, because a GPU that is lent for single calls cannot keep the
cache of a conversation.

>>> declare_gpu_function()      # nothing happens without the package `spaces`
"""


def declare_gpu_function() -> None:
    """Declare such a function if Hugging Face's package `spaces` is installed."""
    try:
        import spaces
    except ImportError:
        return
    spaces.GPU(gpu_function)


def gpu_function() -> None:
    """Do nothing; it is declared for ZeroGPU but never called."""
