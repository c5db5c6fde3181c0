"""Sweeps: how they are submitted, followed and steered, and how programs that search themselves run trials."""
