"""The core: configuration, tokenizer, chat template, sampling, generation, sessions.

Everything outside `gptcore.nn` is free of torch, so that an exported model runs with
numpy and ONNX Runtime alone:

    >>> from gptcore.onnx_session import load_model
    >>> from gptcore.generate import complete
    >>> model = load_model("models/default")                    # doctest: +SKIP
    >>> print(complete(model, [{"role": "user", "content": "Hello!"}]))   # doctest: +SKIP
"""
