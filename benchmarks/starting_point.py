"""What every side of a comparison starts from: rows, an initial model, and weights after the cold start."""

from rl_core.config.run import RunConfig
from rl_core.loop.session import open_session
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest
from tasks.cache.named_files import located_config
from tasks.preparation import prepare_run


def make_starting_point(config: RunConfig, run: RunDirectory) -> None:
    """Fill `run` with the config's initial model, prepared rows and cold-started base model. Starts an engine."""
    config = located_config(config)
    prepare_run(config, run, progress=SilentProgress())
    with open_session(config, run, progress=SilentProgress(), stop=StopRequest()) as session:
        session.run_cold_start()
