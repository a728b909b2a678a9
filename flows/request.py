"""The run that a person asks for: a config file with overrides, or the folder of a run, is resolved to a config and a
run's folder. Imports neither Prefect nor torch, so that planning is quick."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from flows.printing import command_line
from rl_core.config.loading import ConfigError, load_config
from rl_core.config.run import RunConfig
from rl_core.config.stages import StorageConfig
from rl_core.redaction import redact
from rl_core.run_directory import RUNS_DIR, RunDirectory
from tasks.cache.kept_files import files_of_run
from tasks.cache.named_files import NamedFiles
from tasks.cache.stages import run_name
from tasks.storage.run_storage import VARIABLE

Override = Annotated[str, Field(pattern=r"^\s*[^=\s][^=]*=")]
"""A change of one key, `key.path=value`, as Prefect's form checks it: only what the command line refuses too is
refused, since part of the path may be a name that the user chose, such as my-charts or owner/name."""

Overrides = Sequence[Override]


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedRun:
    """What a request leads to: a config and the folder of a run, which may not exist yet. `reuse` says whether finished
    stages of other runs may be taken over; never for a tagged run, which is to show what a run from nothing gives.
    `is_continued` says whether the request named a run and not a config file."""

    config: RunConfig
    run: RunDirectory
    reuse: bool
    is_continued: bool = False

    def files(self, *, is_frozen: bool = False) -> NamedFiles:
        """How the files that the config names are read: from where the config says; or, for a continued run, as the
        run's folder keeps them (rewards only if `is_frozen`)."""
        if not self.is_continued:
            return NamedFiles(paths_from=self.config.paths_from)
        return files_of_run(self.config, self.run, is_frozen=is_frozen)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """The parameters of a command or a flow that decide which run it works on. What is not given is empty, and not
    None, so that Prefect's form has plain fields.

    Attributes:
        config: A config file, or the folder or name of a run.
        overrides: `key.path=value` texts that change keys of a config file.
        resume: The name or folder of a run to continue; it wins over `config`.
        fresh: Make a new run that takes nothing over from others. It is tagged with the time when the flow run was
            created, so that a retry of the flow run continues the same run.
        push: Where to upload the merged model, whatever the config says.
    """

    config: str = ""
    overrides: Sequence[str] = ()
    resume: str = ""
    fresh: bool = False
    runs_dir: str = RUNS_DIR
    push: str = ""

    @classmethod
    def of_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """The request in the parameters of a flow run; parameters that decide something else are left out."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in parameters.items() if name in names})

    def resolved(self, start: datetime) -> ResolvedRun:
        """Find the config and the run's folder, for a flow run that is to start at `start`. For a run that is resumed
        and is not on this machine, the config is fetched from the run's copy. Raises ConfigError where the config is
        refused, or overrides are given for a run that is to be resumed. Raises ValueError where there is no run of that
        name, neither here nor where its copy should be."""
        if not self.resume and not self.config:
            raise ConfigError("give a config file, or a run to resume")
        tag = start_tag(start) if self.fresh else None
        found = (
            self._resumed()
            if self.resume
            else resolve_run(self.config, self.overrides, runs_dir=self.runs_dir, tag=tag)
        )
        if not self.push:
            return found
        merge = found.config.merge.model_copy(update={"push": self.push})
        return dataclasses.replace(found, config=found.config.model_copy(update={"merge": merge}))

    def _resumed(self) -> ResolvedRun:
        address, name = split_address(self.resume)
        storage = address or os.environ.get(VARIABLE)
        try:
            run = find_run(name, self.runs_dir)
        except ValueError as error:
            run = RunDirectory(Path(self.runs_dir) / name)
            if not storage or not _fetched(run, storage):
                where = f", and neither has the storage {redact(storage)}" if storage else ""
                raise ValueError(f"{error}{where}") from None
        request = resolve_run(run.root, self.overrides)
        if address is None:
            return request
        settings = (request.config.storage or StorageConfig(address=address)).model_copy(update={"address": address})
        return dataclasses.replace(request, config=request.config.model_copy(update={"storage": settings}))


def split_address(name: str) -> tuple[str | None, str]:
    """(storage, name of the run) where `name` is the address of a run's copy; (None, name) where it is not."""
    if "://" not in name and not (Path(name) / "records").is_dir():
        return None, name
    address, _, last = name.rstrip("/").rpartition("/")
    return address, last


def _fetched(run: RunDirectory, address: str) -> bool:
    """Fetch the config of a run. Returns whether there is a copy of the run."""
    # Imported here, since planning a run of this machine needs no storage.
    from tasks.storage.contents import bring_settings
    from tasks.storage.run_storage import run_store

    try:
        return bring_settings(run_store(StorageConfig(address=address), run.name), run)
    except OSError as error:
        raise ValueError(f"the storage {redact(address)} does not answer: {error}") from None


def find_run(name: str, runs_dir: str) -> RunDirectory:
    """Find a run by its folder, or by its name in `runs_dir`. Raises ValueError, with the runs that there are."""
    for path in (Path(name), Path(runs_dir) / name):
        if (path / "config.yaml").is_file():
            return RunDirectory(path)
    known = sorted(path.parent.name for path in Path(runs_dir).glob("*/config.yaml"))
    raise ValueError(f"no run {name}; {runs_dir} has {', '.join(known) or 'none'}")


def resume_command(run: RunDirectory) -> str:
    """The command that continues a run, in the directory where the flow ran."""
    runs_dir = str(run.root.parent)
    elsewhere = [] if runs_dir == RUNS_DIR else ["--runs-dir", runs_dir]
    return command_line(["sightline", "run", "--resume", run.name, *elsewhere])


def resolve_run(
    target: str | Path,
    overrides: Sequence[str] = (),
    *,
    runs_dir: str | Path = RUNS_DIR,
    tag: str | None = None,
) -> ResolvedRun:
    """Resolve a config file, with `key.path=value` overrides, or the folder or name of a run, which is then continued.
    A tag leads to a separate run, beside the one that the config alone leads to. Raises ConfigError where the config is
    refused, or overrides or a tag are given with a run."""
    path = path_of(target, runs_dir)
    if path.is_dir():
        return _continued(RunDirectory(path), overrides=overrides, tag=tag)
    return run_of_config(load_config(path, overrides), runs_dir=runs_dir, tag=tag)


def path_of(target: str | Path, runs_dir: str | Path) -> Path:
    """The path of a file or folder; of a run, if there is no such path and it has this name."""
    path, named = Path(target), Path(runs_dir) / target
    return named if not path.exists() and (named / "config.yaml").is_file() else path


def run_of_config(config: RunConfig, *, runs_dir: str | Path, tag: str | None) -> ResolvedRun:
    """The run that a config leads to; for `runs_dir` and `tag` see resolve_run."""
    return ResolvedRun(config=config, run=RunDirectory(Path(runs_dir) / run_name(config, tag=tag)), reuse=tag is None)


def start_tag(moment: datetime) -> str:
    """The tag of a fresh or scheduled run: its start in UTC."""
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S")


def _continued(run: RunDirectory, *, overrides: Sequence[str], tag: str | None) -> ResolvedRun:
    if overrides or tag:
        raise ConfigError(f"{run.root} is a run, whose config cannot change: give a config file to change a key")
    if not run.config.is_file():
        raise ConfigError(f"{run.root} is no run (it holds no {run.config.name}): give a config file or a run's folder")
    config = load_config(run.config)
    return ResolvedRun(config=config, run=run, reuse=run.name == run_name(config), is_continued=True)
