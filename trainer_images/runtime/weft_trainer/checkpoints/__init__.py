"""CHECKPOINT_DIR and its generations in a store: what is stored, when it is consistent, and how it comes back."""
