#!/usr/bin/env bash
# A search on SLURM: a Ray cluster over the nodes of one job, which ends with the search. Change what
# is marked, then:
#
#   sbatch clusters/slurm.sh my_search.yaml --set resources.gpus=auto
#   sbatch --nodes=4 --gpus-per-node=8 clusters/slurm.sh my_search.yaml --set resources.gpus=auto
#
# What comes after the script's name goes to `bitfront run`, what comes before it is for SLURM and
# goes before the lines below. When the time is over, the search is told
# two minutes before: it stops as on ctrl-C, with its running trials kept at their last epoch. Submit the
# same line again: it continues where it stopped. A preempted job is queued again by SLURM and does so
# by itself.
#SBATCH --job-name=bitfront
#SBATCH --nodes=2 # CHANGE
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16 # CHANGE
#SBATCH --gpus-per-node=4 # CHANGE: 0 where there are none
#SBATCH --time=24:00:00 # CHANGE: no more than `sinfo -o "%P %l"` allows in your partition
#SBATCH --signal=B:TERM@120 # to this script, which hands it on
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

# module load python/3.11 # CHANGE: what the python of the environment below was made with, if a module
venv=${BITFRONT_VENV:-$HOME/bitfront-venv} # CHANGE: where bitfront is installed, on a shared disk
export BITFRONT_HOME=${BITFRONT_HOME:-$HOME/bitfront-runs} # CHANGE: on a shared disk too
# A shared disk is no place for SQLite. With a database the ledger is safe from two jobs, or a job and
# a login node, at once; its password is in ~/.pgpass. Without one: look at a search when it has ended.
# export BITFRONT_LEDGER=postgresql://me@db.example.org/bitfront # CHANGE
# Checkpoints and data sets, where all nodes of the job see them.
export BITFRONT_STORAGE=${BITFRONT_STORAGE:-$HOME/bitfront-checkpoints} # CHANGE: on a shared disk
export BITFRONT_DATA=${BITFRONT_DATA:-$HOME/bitfront-data} # CHANGE: the same
mkdir -p "$BITFRONT_STORAGE"
export PATH="$venv/bin:$PATH"

# A password of this job's own: others on the network cannot run code here.
RAY_AUTH_TOKEN=$(python -c "import secrets; print(secrets.token_hex(32))")
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
head_ip=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | awk '{print $1}')
# Two jobs may share a node: the port, and Ray's files, are this job's own.
port=$((20000 + SLURM_JOB_ID % 20000))
files=/tmp/ray-$SLURM_JOB_ID
gpus=${SLURM_GPUS_ON_NODE:-0}
# SLURM 22.05 and newer gives a step one core unless it is told.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
common=(--num-cpus "$SLURM_CPUS_PER_TASK" --num-gpus "$gpus" --disable-usage-stats --block)

srun --overlap --nodes=1 --ntasks=1 -w "$head" ray start --head --node-ip-address="$head_ip" \
  --port="$port" --temp-dir="$files" --include-dashboard=false "${common[@]}" &
until ray health-check --address "$head_ip:$port" 2>/dev/null; do sleep 2; done

if ((${#nodes[@]} > 1)); then
  rest=$(IFS=,; echo "${nodes[*]:1}")
  srun --overlap --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) -w "$rest" \
    ray start --address "$head_ip:$port" "${common[@]}" &
fi

# The first node runs this script and the driver.
bitfront run "$@" --address "$head_ip:$port" &
driver=$!
trap 'kill -TERM "$driver"' TERM
# `wait` returns when the signal comes, and once more when the driver has ended.
wait "$driver" || code=$?
if kill -0 "$driver" 2>/dev/null; then wait "$driver" || code=$?; fi
exit "${code:-0}"
