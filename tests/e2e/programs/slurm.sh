#!/bin/bash
#SBATCH --job-name=on-two-nodes
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --mem=512M
#SBATCH --time=10
set -e
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
echo "nodes: $(scontrol show hostnames | wc -l), arguments: $*"
srun --label bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS on node $SLURM_NODEID, master $MASTER_ADDR"'
srun -N1 -n1 -w learner-2 bash -c 'echo "$LEARNER_ID" > "$RESULT_DIR/second.txt"'
srun bash -c 'exit $SLURM_NODEID' || echo "the step ended with $?"
