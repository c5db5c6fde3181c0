"""The agent's view of its machine and kernel: addresses and ports, ties between processes, usage of CPU and GPU."""
