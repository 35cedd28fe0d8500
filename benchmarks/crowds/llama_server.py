"""Serves a GGUF file with llama.cpp's own server, from the package xllamacpp (its environment).

python benchmarks/crowds/llama_server.py MODEL.gguf PORT SLOTS CONTEXT THREADS
"""

import sys
import time

import xllamacpp


def main() -> None:
    path, port, n_slots, context, threads = sys.argv[1], *map(int, sys.argv[2:6])
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_parallel, params.n_ctx = n_slots, n_slots * context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_threads_http = 8
    params.verbosity = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
