"""What every side of a comparison starts from: rows, an initial model, and weights after the cold start."""

from rl_core.config.run import RunConfig
from rl_core.data.preparation import prepare_dataset
from rl_core.engine.session import open_session
from rl_core.engine.stop import StopRequest
from rl_core.files import committed_folder
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from tasks.initial_model import write_initial_model


def make_starting_point(config: RunConfig, run: RunDirectory) -> None:
    """Fill `run` with the config's initial model, prepared rows and cold-started base model. Starts an engine."""
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
        session.run_cold_start()
