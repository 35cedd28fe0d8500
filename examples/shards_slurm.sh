#!/bin/bash
# Token shards of a large corpus as an array of Slurm jobs; see "A corpus larger than the disk" in
# docs/training.md. All nodes see the folders, and the environment has requirements-train.txt.
#
#   python -m training shards texts/sample.jsonl --shards sample      # its tokenizer is for all parts
#   sbatch --array=1-64 examples/shards_slurm.sh texts/ sample/KEY/tokenizer made
#   python -m training shards --join --shards made                    # when all have ended
#
# A part that failed is made again alone: sbatch --array=17 with the same arguments, and
# N_PARTS=64, as an array of one does not know of the others.
#SBATCH --job-name=shards
#SBATCH --cpus-per-task=4
#SBATCH --output=shards-%A-%a.log
set -euo pipefail
texts=$1 tokenizer=$2 folder=$3
n_parts=${N_PARTS:-$SLURM_ARRAY_TASK_COUNT}
python -m training shards "$texts" --tokenizer "$tokenizer" --shards "$folder" \
    --part "$SLURM_ARRAY_TASK_ID/$n_parts"
