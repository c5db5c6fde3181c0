"""Sweeps: submitted, followed and steered; asked and told by programs that search themselves."""
