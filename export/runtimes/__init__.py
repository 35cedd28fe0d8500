"""Greedy generation in other runtimes, each run by a program in its own environment.

A program is started as `PROGRAM FOLDER THREADS`. It first prints a line of JSON that describes it,
then answers requests, one per line. All prompts of a request form one batch; no token ends a reply:

    {"runtime": "onnxruntime", "version": "1.31.1", "file": "onnx/model.onnx"}
    {"prompts": [[5, 8], [13]], "n": 3}
    {"ids": [[21, 34, 55], [89, 1, 4]], "prefill_seconds": 0.002, "seconds": 0.001}

environments.py creates the environments and starts the programs.
"""
