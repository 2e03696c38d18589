#!/bin/bash
# Train on several nodes under Slurm, one torchrun per node. Two minutes before the time is up the
# ranks save and leave, and the job goes back into the queue to go on.
#
#     sbatch --nodes 4 --gpus-per-node 8 examples/slurm.sh config.toml
#
#SBATCH --job-name=penstock
#SBATCH --ntasks-per-node=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append

config=${1:?usage: sbatch --nodes N slurm.sh CONFIG.toml}
ranks_per_node=${RANKS_PER_NODE:-${SLURM_GPUS_ON_NODE:-1}}
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000))

export config ranks_per_node first port
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=100  # seconds that torchrun leaves the ranks for saving

# srun hands SIGTERM on to torchrun on every node, and torchrun to the ranks.
stopped=no
trap 'stopped=yes; kill -TERM "$step"' USR1

# Each node works out for itself whether it is the first, which hosts the rendezvous.
srun --kill-on-bad-exit=0 bash -c '
    is_host=$([ "$SLURM_NODEID" -eq 0 ] && echo 1 || echo 0)
    exec torchrun \
        --nnodes "$SLURM_NNODES" --nproc-per-node "$ranks_per_node" --max-restarts 3 \
        --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:$port" \
        --rdzv-conf "is_host=$is_host" \
        -m penstock train "$config"
' &
step=$!

wait "$step"
code=$?
while kill -0 "$step" 2>/dev/null; do  # the trap ended the first wait, not the ranks
    wait "$step"
    code=$?
done
if [ "$stopped" = yes ]; then
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
