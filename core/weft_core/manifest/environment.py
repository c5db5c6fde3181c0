"""Names that a manifest's ``env`` and ``secrets`` can't set, because Weft and its launchers do."""

from __future__ import annotations

_LEARNER = """
    DATA_DIR RESULT_DIR RESULT_BUCKET_DIR MODEL_DIR CHECKPOINT_DIR LOG_DIR JOB_STATE_DIR PRETRAINED_DIR
    PRETRAINED_MODEL
    LEARNER_ID NUM_LEARNERS GPU_COUNT TRAINING_ID TRAINING_JOB TRAINING_COMMAND
"""
_LAUNCHER = """
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE MASTER_ADDR
    MASTER_PORT TF_CONFIG RAY_ADDRESS
"""
_SLURM = """
    JOB_ID JOBID JOB_NUM_NODES NNODES NTASKS NPROCS PROCID LOCALID NODEID GTIDS JOB_NODELIST NODELIST TASKS_PER_NODE
    CPUS_ON_NODE JOB_CPUS_PER_NODE GPUS_ON_NODE JOB_GPUS MEM_PER_NODE RESTART_COUNT SUBMIT_DIR SUBMIT_HOST TMPDIR
    CLUSTER_NAME LAUNCH_NODE_IPADDR SRUN_COMM_HOST
"""
_PREFIXES = ("WEFT_", "TORCHELASTIC_", "HOROVOD_", "SLURM_STEP", "SLURMD_")
# Horovod's own knobs, which are the user's to turn; the rest of HOROVOD_ says where a process stands in its gang.
_KNOBS = """
    ADASUM_MPI_CHUNK_SIZE AUTOTUNE AUTOTUNE_BAYES_OPT_MAX_SAMPLES AUTOTUNE_GAUSSIAN_PROCESS_NOISE AUTOTUNE_LOG
    AUTOTUNE_STEPS_PER_SAMPLE AUTOTUNE_WARMUP_SAMPLES BATCH_D2D_MEMCOPIES CACHE_CAPACITY CYCLE_TIME
    DISABLE_GROUP_FUSION ENABLE_ASYNC_COMPLETION ENABLE_XLA_OPS FUSION_THRESHOLD GLOO_TIMEOUT_SECONDS
    HIERARCHICAL_ALLGATHER HIERARCHICAL_ALLREDUCE LOG_HIDE_TIME LOG_LEVEL LOG_TIMESTAMP NUM_NCCL_STREAMS
    STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS THREAD_AFFINITY TIMELINE
    TIMELINE_MARK_CYCLES
"""


def _words(text: str, prefix: str = "") -> frozenset[str]:
    return frozenset(prefix + word for word in text.split())


_SET_BY_WEFT = _words(_LEARNER)
_SET_BY_LAUNCHERS = _words(_LAUNCHER) | _words(_SLURM, "SLURM_")
_USERS_OWN = _words(_KNOBS, "HOROVOD_")


def reserved(name: str) -> str | None:
    """Why the environment name ``name`` can't be set by a manifest; None when it can."""
    upper = name.upper()
    if upper in _SET_BY_WEFT:
        return f"{name} is reserved: Weft sets it in every learner"
    if upper in _SET_BY_LAUNCHERS or (upper.startswith(_PREFIXES) and upper not in _USERS_OWN):
        return f"{name} is reserved: Weft or the launcher sets it (framework.launcher chooses which)"
    return None
