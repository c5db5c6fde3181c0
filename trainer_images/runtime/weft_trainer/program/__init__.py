"""The user's program: its environment, its processes, how they are started and ended, and how they ended."""
