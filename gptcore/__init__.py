"""The core: configuration, tokenizer, chat template, sampling, generation, sessions.

Everything outside `gptcore.nn` is free of torch, so that an exported model runs with
numpy and ONNX Runtime alone:

    >>> from gptcore.generate import chat
    >>> from gptcore.onnx_session import load_model
    >>> model = load_model("models/default")                                 # doctest: +SKIP
    >>> for piece in chat(model, [{"role": "user", "content": "Hello!"}]):   # doctest: +SKIP
    ...     print(piece.text, end="", flush=True)
"""
