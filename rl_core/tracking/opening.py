"""Opens the trackers that a config names. MLflow is opened elsewhere (tasks.tracking), as it shows more than the
steps."""

from collections.abc import Iterator

from rl_core.config.run import RunConfig
from rl_core.records.metrics_log import read
from rl_core.redaction import redact_tree
from rl_core.run_directory import RunDirectory
from rl_core.tracking.console_tracker import ConsoleTracker
from rl_core.tracking.tracker import Tracker


def open_trackers(config: RunConfig, run: RunDirectory) -> Iterator[Tracker]:
    """Create the trackers; their servers are contacted later. Raises ImportError where the extra `trackers` is not
    installed, which `sightline plan` reports before."""
    tracking = config.tracking
    shown = redact_tree(config.model_dump(mode="json", exclude={"tracking", "storage"}))
    if tracking.console:
        yield ConsoleTracker(after=max((record["step"] for record in read(run.metrics)), default=-1))
    if tracking.tensorboard:
        from rl_core.tracking.tensorboard_tracker import TensorboardTracker

        yield TensorboardTracker(run.tensorboard)
    if tracking.wandb is not None:
        from rl_core.tracking.wandb_tracker import WandbTracker

        yield WandbTracker(tracking.wandb, run.root, experiment=config.experiment, run_name=run.name, run_config=shown)
    if tracking.swanlab:
        from rl_core.tracking.swanlab_tracker import SwanlabTracker

        yield SwanlabTracker(run.swanlab, experiment=config.experiment, run_name=run.name, run_config=shown)
