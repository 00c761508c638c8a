#!/usr/bin/env bash
# sbatch slurm.sh GRID.toml OUT — a Ray cluster on the nodes of a Slurm allocation, and a grid on it.
# The same command again goes on where the time limit ended it. The environment needs `pip install 'schedbench[ray]'`.
#SBATCH --job-name=bench-grid
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=1
#SBATCH --time=08:00:00
# Slurm tells the job a minute before its time is over, so that runs under way end readably.
#SBATCH --signal=B:INT@60
set -euo pipefail

grid=${1:?sbatch slurm.sh GRID.toml OUT}
out=${2:?sbatch slurm.sh GRID.toml OUT}
port=${RAY_PORT:-6379}
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | awk '{print $1}'):$port

srun --nodes=1 --ntasks=1 -w "$head" \
  ray start --head --node-ip-address="${address%:*}" --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
sleep 10
for node in "${nodes[@]:1}"; do
  srun --nodes=1 --ntasks=1 -w "$node" ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
done
sleep 10

bench grid "$grid" --out "$out" --address "$address" &
running=$!
trap 'kill -INT "$running"' INT TERM
wait "$running"
