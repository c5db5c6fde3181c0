"""``weft backup`` and ``weft restore``: one file that holds an embedded installation (docs/backup.md)."""
