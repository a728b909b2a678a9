"""The address that a run is copied to. Imports neither Prefect nor torch."""

import os

from rl_core.config.run import RunConfig
from rl_core.config.stages import StorageConfig
from rl_core.storage.store import RunStore

VARIABLE = "SIGHTLINE_STORAGE"


def storage_settings(config: RunConfig) -> StorageConfig | None:
    """The storage settings, None without an address; that of the environment comes first, as machines differ."""
    address = os.environ.get(VARIABLE)
    if not address:
        return config.storage
    return (config.storage or StorageConfig(address=address)).model_copy(update={"address": address})


def run_store(settings: StorageConfig, run_name: str) -> RunStore:
    """The copy of a run. Raises ValueError where no installed package can open the address."""
    # Imported here: it loads fsspec, and most runs are not copied.
    from rl_core.storage.place import Place

    return RunStore(Place.at(settings.address).below(run_name), verify=settings.verify)
