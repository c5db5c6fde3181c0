"""CHECKPOINT_DIR and its generations in a store: how they are stored, consistent with each other, and restored."""
