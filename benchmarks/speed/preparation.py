"""Prepares the rows and the cold-started weights that both sides start from: `python -m ... WORK`."""

import sys
from pathlib import Path

from benchmarks.speed.side import CONFIG
from rl_core.config.loading import load_config
from rl_core.data.preparation import prepare_dataset
from rl_core.engine.session import open_session
from rl_core.engine.stop import StopRequest
from rl_core.files import committed_folder
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from tasks.initial_model import write_initial_model


def prepare(run: RunDirectory) -> None:
    """Fill `run` with the quickstart's initial model, prepared rows and cold-started base model."""
    config = load_config(CONFIG)
    with committed_folder(run.initial_model) as folder:
        write_initial_model(config, folder)
    prepare_dataset(
        config.data,
        model_folder=run.initial_model,
        out=run.data,
        progress=SilentProgress(),
        cold_start_source=config.cold_start.source if config.cold_start else None,
    )
    with open_session(config, run, progress=SilentProgress(), stop=StopRequest()) as session:
        print(dict(session.run_cold_start()))


if __name__ == "__main__":
    prepare(RunDirectory(Path(sys.argv[1])))
