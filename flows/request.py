"""What a person asks for: a config file with overrides, or a run's folder, becomes a run. Imports neither Prefect nor
torch, so that planning is quick."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rl_core.config.loading import ConfigError, load_config
from rl_core.config.run import RunConfig
from rl_core.run_directory import RunDirectory
from tasks.stages import run_name

RUNS_DIR = "runs"
"""Where runs lie when nothing else is said, relative to the working directory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """A run that is asked for.

    Attributes:
        config: The resolved config.
        run: Its folder, made or not.
        reuse: Whether finished stages of other runs may be taken over; never for a tagged run, which is to show what a
            run from nothing gives.
    """

    config: RunConfig
    run: RunDirectory
    reuse: bool


def resolve_request(
    target: str | Path,
    overrides: Sequence[str] = (),
    *,
    runs_dir: str | Path = RUNS_DIR,
    tag: str | None = None,
    push: str | None = None,
) -> RunRequest:
    """The run that `target` leads to.

    Args:
        target: A config file, or the folder of a run, which is then continued.
        overrides: `key.path=value` texts laid over a config file.
        runs_dir: Where new runs are made.
        tag: Makes a run of its own beside the one that the config leads to.
        push: Where to upload the merged model, whatever the config says.

    Raises:
        ConfigError: the config is refused, or overrides or a tag are given for a run's folder.
    """
    path = Path(target)
    if path.is_dir():
        return _continued(RunDirectory(path), overrides=overrides, tag=tag, push=push)
    config = _pushing(load_config(path, overrides), push)
    return RunRequest(config=config, run=RunDirectory(Path(runs_dir) / run_name(config, tag=tag)), reuse=tag is None)


def start_tag(moment: datetime) -> str:
    """The tag of a fresh or scheduled run: its start in UTC."""
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S")


def _pushing(config: RunConfig, push: str | None) -> RunConfig:
    if push is None:
        return config
    return config.model_copy(update={"merge": config.merge.model_copy(update={"push": push})})


def _continued(run: RunDirectory, *, overrides: Sequence[str], tag: str | None, push: str | None) -> RunRequest:
    if overrides or tag:
        raise ConfigError(f"{run.root} is a run and its config is settled: give the config file to change a key")
    if not run.config.is_file():
        raise ConfigError(f"{run.root} is no run (it holds no {run.config.name}): give a config file or a run's folder")
    config = _pushing(load_config(run.config), push)
    return RunRequest(config=config, run=run, reuse=run.name == run_name(config))
