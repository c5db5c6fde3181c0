"""What the agent asks of its machine and kernel: addresses and ports, ties between processes, and how much the
learner's processes and GPUs use."""
