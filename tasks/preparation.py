"""The work of the stage `prepare`: it writes the configured model, and the rows as prompts of that model."""

from collections.abc import Callable

from rl_core.config.model import TinyModel
from rl_core.config.run import RunConfig
from rl_core.data.fingerprint import preparation_fingerprint
from rl_core.data.manifest import DataManifest
from rl_core.data.preparation import prepare_dataset
from rl_core.files import committed_folder
from rl_core.progress import Progress
from rl_core.run_directory import RunDirectory
from tasks.initial_model import write_initial_model


def prepare_run(
    config: RunConfig,
    run: RunDirectory,
    *,
    progress: Progress,
    bring: Callable[[str], bool] = lambda fingerprint: False,
) -> DataManifest:
    """Write the initial model and the prepared rows into a run's folder, each whole or not at all.

    Args:
        config: The config, with the files that it names where they lie.
        run: The run.
        progress: Shows how far it is.
        bring: Brings the prepared rows with this fingerprint from elsewhere. Returns whether it did; they do not depend
            on the seed, which an initial model may.

    Raises:
        ValueError: the model cannot be built, or the data cannot be used.
        OSError: the checkpoint cannot be read or downloaded.
    """
    source = config.model.source
    making = "build the tiny model" if isinstance(source, TinyModel) else f"get the checkpoint {source.path}"
    with progress.wait(making), committed_folder(run.initial_model) as folder:
        write_initial_model(config, folder)
    own_source = config.cold_start.source if config.cold_start else None
    folder = run.initial_model
    if bring(preparation_fingerprint(config.data, model_folder=folder, cold_start_source=own_source)):
        return DataManifest.read(run.data)
    return prepare_dataset(
        config.data, model_folder=folder, out=run.data, progress=progress, cold_start_source=own_source
    )
