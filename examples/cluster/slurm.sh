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
timeout 120 bash -c 'until ray status --address "$1" > /dev/null 2>&1; do sleep 1; done' - "$address"
# A node that joins later takes its part then.
for node in "${nodes[@]:1}"; do
  srun --nodes=1 --ntasks=1 -w "$node" ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
done

# A shell lets what it starts in the background ignore an interrupt: told to end, the grid ends readably as well.
trap 'kill -TERM $!' INT TERM
bench grid "$grid" --out "$out" --address "$address" &
# The signal ends the first wait; the second waits until the grid has ended.
wait $! || wait $!
