"""Other runtimes, each in a program and an environment of its own, that generate greedily.

A peer is started as `PROGRAM FOLDER THREADS` and first says what it is, in a line of JSON; then it
answers requests, a line each. All prompts of a request are one batch; no token ends a reply:

    {"runtime": "onnxruntime", "version": "1.31.1", "file": "onnx/model.onnx"}
    {"prompts": [[5, 8], [13]], "n": 3}
    {"ids": [[21, 34, 55], [89, 1, 4]], "prefill_seconds": 0.002, "seconds": 0.001}

environments.py makes the environments and starts the programs.
"""
