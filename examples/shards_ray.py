"""Token shards of a large corpus as tasks of a Ray cluster.

    pip install "ray>=2.50,<3"
    python -m training shards texts/sample.jsonl --shards sample   # its tokenizer is for all parts
    python examples/shards_ray.py texts/ --tokenizer sample/KEY/tokenizer --shards made --parts 64

All nodes see the folders and this project. Without a cluster, Ray uses the cores of this machine.
A task that dies with its node is made again by Ray, alone.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import ray

ROOT = Path(__file__).resolve().parent.parent


@ray.remote(max_retries=3)
def make_part(texts: list[str], tokenizer: str, folder: str, part: str) -> str:
    words = [*texts, "--tokenizer", tokenizer, "--shards", folder, "--part", part]
    command = [sys.executable, "-m", "training", "shards", *words]
    subprocess.run(command, cwd=ROOT, check=True)
    return part


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--parts", type=int, default=64)
    options = parser.parse_args()
    texts = [str(path.resolve()) for path in options.texts]
    tokenizer, folder = str(options.tokenizer.resolve()), str(options.shards.resolve())
    ray.init()
    parts = [f"{k}/{options.parts}" for k in range(1, options.parts + 1)]
    waiting = [make_part.remote(texts, tokenizer, folder, part) for part in parts]
    while waiting:
        done, waiting = ray.wait(waiting)
        print(f"made part {ray.get(done[0])}, {len(waiting)} to go", flush=True)
    command = [sys.executable, "-m", "training", "shards", "--join", "--shards", folder]
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
