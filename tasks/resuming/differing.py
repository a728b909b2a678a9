"""What of a config is another than in a run of the same recipe that has begun."""

from collections.abc import Sequence
from typing import Final

from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.run import RunConfig
from rl_core.data.manifest import DataManifest
from rl_core.planning.batches import epoch_spans
from rl_core.run_directory import RunDirectory
from tasks.cache.amendments import data_place, read_amendments
from tasks.cache.kept_files import WEIGHTS, changed_inputs, started_config
from tasks.cache.manifests import read_manifest
from tasks.cache.named_files import NamedFiles
from tasks.cache.stages import FOLLOWED_LENGTH, follows_length, training_length

SHORTER: Final = "the length of the run, which is shorter than what is trained already,"
"""How `what_differs` calls a length that the run has passed."""


def what_differs(run: RunDirectory, config: RunConfig, files: NamedFiles) -> list[str]:
    """The files, the data, and the length, where the training depends on it, that are others than in a run of this
    recipe. Raises ValueError or OSError where a data source or a file that the config names cannot be read."""
    differs = changed_inputs(run, config, files)
    started = started_config(run)
    trained = _trained_steps(run, config)
    if started is None or not trained:
        return differs
    if follows_length(config) and training_length(started) != training_length(config):
        return [*differs, FOLLOWED_LENGTH]
    steps = _total_steps(run, config)
    return [*differs, SHORTER] if steps is not None and steps < trained else differs


def why_it_cannot_go_on(run: RunDirectory, differs: Sequence[str]) -> str | None:
    """Why the training of a run cannot go on with what differs, in words; None where it can."""
    fork = f"sightline fork {run.name} --step N goes on from a checkpoint in a new run"
    if WEIGHTS in differs:
        return "its checkpoints come from other weights"
    if SHORTER in differs:
        return fork
    if read_manifest(run, "report") is not None and list(differs) != [FOLLOWED_LENGTH]:
        return f"it is finished, and a finished run stays as it is; {fork}"
    return None


def _trained_steps(run: RunDirectory, config: RunConfig) -> int:
    saved = CheckpointStore(run.checkpoints, save_limit=config.trainer.save_limit).complete()
    return saved[-1].step if saved else 0


def _total_steps(run: RunDirectory, config: RunConfig) -> int | None:
    """None where the rows are not counted yet."""
    if config.trainer.max_steps is not None:
        return config.trainer.max_steps
    try:
        rows = DataManifest.read(run.data).splits["train"].rows
    except (OSError, ValueError):
        return None
    return epoch_spans(config, rows, since=data_place(read_amendments(run))).end(config.trainer.total_epochs)
