"""The pretrained model, when it is a version that the installation's own store holds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weft_trainer.errors import DataError
from weft_trainer.inputs.cache import Brought, CacheRequest, NodeCache
from weft_trainer.inputs.progress import Progress
from weft_trainer.spec import ModelInput
from weft_trainer.stores.installation import InstallationStore
from weft_trainer.stores.paths import below
from weft_trainer.stores.retry import PATIENCE, patiently
from weft_trainer.stores.store import Stored

_AT_ONCE = 8


def bring_model(
    store: InstallationStore, model: ModelInput, cache: NodeCache, folder: Path, say: Callable[[str], None]
) -> list[Stored]:
    """Put all files of ``model`` into ``folder``, by way of the node's cache; returns them. ``say`` gets lines for the
    user when it takes long.

    Raises:
        DataError: the model's files are gone, or don't come.
    """
    try:
        files = patiently(store.list, PATIENCE)
        if not files:
            raise DataError(f"the objects of model {model.reference} are gone from the installation's own store")

        def fetch(stored: Stored) -> None:
            # A version never changes, and its id is its own on all installations that share this node.
            target = below(folder, stored.key)
            target.parent.mkdir(parents=True, exist_ok=True)
            brought = cache.bring(
                CacheRequest.of(
                    ("model", model.id, stored.key, str(stored.size)), stored.size, stored.modified, target
                ),
                lambda file: patiently(
                    lambda: store.fetch(stored.key, Path(f"/proc/self/fd/{file}"), progress.came), PATIENCE
                ),
            )
            if brought is Brought.CACHED:
                progress.cached(1, stored.size)
            else:
                progress.brought()

        progress = Progress("pretrained model", say)
        progress.expect(len(files), sum(stored.size for stored in files))
        with progress.spoken_of(), ThreadPoolExecutor(_AT_ONCE, "model") as pool:
            for _ in pool.map(fetch, files):
                pass
    except DataError as error:
        error.error_code = "S301"
        raise
    return files
