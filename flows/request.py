"""The run that a person asks for: a config file with overrides, or the folder of a run, is resolved to a config and a
run's folder. Imports neither Prefect nor torch, so that planning is quick."""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from flows.printing import command_line
from rl_core.config.key_kinds import LENGTH, OPERATION, changed_keys, is_of
from rl_core.config.loading import ConfigError, load_config
from rl_core.config.run import RunConfig
from rl_core.config.stages import StorageConfig
from rl_core.files import numbered
from rl_core.redaction import redact
from rl_core.run_directory import RUNS_DIR, RunDirectory
from rl_core.wording import first_of
from tasks.cache.kept_files import files_of_run
from tasks.cache.named_files import NamedFiles
from tasks.cache.stages import run_name
from tasks.resuming.differing import what_differs, why_it_cannot_go_on
from tasks.storage.run_storage import VARIABLE

Override = Annotated[str, Field(pattern=r"^\s*[^=\s][^=]*=")]
"""A change of one key, `key.path=value`, as Prefect's form checks it: only what the command line refuses too is
refused, since part of the path may be a name that the user chose, such as my-charts or owner/name."""

Overrides = Sequence[Override]

_CONFIGS: Final = ("*.yaml", "configs/**/*.yaml")
"""Where the configs lie that Prefect's form offers, below the folder in which the deployments are registered."""


class _Offering:
    """Gives a text parameter a list of the configs that are there, besides a field that takes any file. The field comes
    first, because Prefect's form goes back to it with what was chosen, and the list has no type for the same reason."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = sorted(path for pattern in _CONFIGS for path in Path().glob(pattern))
        names = [path.as_posix() for path in found if _is_config(path)]
        text = handler(core)
        return (
            {"anyOf": [{"title": "any file", **text}, {"title": "one that is here", "enum": names}]} if names else text
        )


def _is_config(path: Path) -> bool:
    """Whether a file is a whole config, and not a part that others extend."""
    try:
        return re.search(rb"^experiment:", path.read_bytes(), re.MULTILINE) is not None
    except OSError:
        return False


ConfigFile = Annotated[str, _Offering()]
"""A config file; Prefect's form offers those that are there."""

FROZEN: Final = ("evaluate", "merge")
"""Flows that measure a run as it was, and not with files that were edited since."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedRun:
    """What a request leads to: a config and the folder of a run, which may not exist yet. `reuse` says whether finished
    stages of other runs may be taken over; never for a tagged run, which is to show what a run from nothing gives.
    `is_continued` says whether the request named a run and not a config file. `differs` says what is another than in
    the run that is there: in `predecessor`, the run of this recipe that stays as it is; or in `run` itself, whose
    training goes on with it (`keeps_training`)."""

    config: RunConfig
    run: RunDirectory
    reuse: bool
    is_continued: bool = False
    differs: Sequence[str] = ()
    predecessor: RunDirectory | None = None

    @property
    def keeps_training(self) -> bool:
        """Whether the run's training goes on with another recipe."""
        return bool(self.differs) and self.predecessor is None

    @property
    def why_new(self) -> str:
        """Why this is another run than the one that is there, in words; empty where there is none."""
        return (
            f"{first_of(self.differs)} changed, so this is another run beside {self.predecessor.name}"
            if self.predecessor
            else ""
        )

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
        keep_training: Where the files that the config names have changed since the run was started, or the learning
            rate follows another length now, let its training go on instead of starting a new run.
    """

    config: str = ""
    overrides: Sequence[str] = ()
    resume: str = ""
    fresh: bool = False
    runs_dir: str = RUNS_DIR
    push: str = ""
    keep_training: bool = False

    @classmethod
    def of_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """The request in the parameters of a flow run; parameters that decide something else are left out."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in parameters.items() if name in names})

    def resolved(self, start: datetime, *, is_frozen: bool = False) -> ResolvedRun:
        """Find the config and the run's folder, for a flow run that is to start at `start`; with `is_frozen` files that
        have changed since make no other run. For a run that is resumed
        and is not on this machine, the config is fetched from the run's copy. Raises ConfigError where the config is
        refused, or overrides are given for a run that is to be resumed. Raises ValueError where there is no run of that
        name, neither here nor where its copy should be."""
        if not self.resume and not self.config:
            raise ConfigError("give a config file, or a run to resume")
        tag = start_tag(start) if self.fresh else None
        found = (
            self._resumed(is_frozen=is_frozen)
            if self.resume
            else resolve_run(
                self.config,
                self.overrides,
                runs_dir=self.runs_dir,
                tag=tag,
                keep_training=self.keep_training,
                is_frozen=is_frozen,
            )
        )
        if not self.push:
            return found
        merge = found.config.merge.model_copy(update={"push": self.push})
        return dataclasses.replace(found, config=found.config.model_copy(update={"merge": merge}))

    def _resumed(self, *, is_frozen: bool) -> ResolvedRun:
        address, name = split_address(self.resume)
        storage = address or os.environ.get(VARIABLE)
        try:
            run = find_run(name, self.runs_dir)
        except ValueError as error:
            run = RunDirectory(Path(self.runs_dir) / name)
            if not storage or not _fetched(run, storage):
                where = f", and neither has the storage {redact(storage)}" if storage else ""
                raise ValueError(f"{error}{where}") from None
        request = resolve_run(run.root, self.overrides, keep_training=self.keep_training, is_frozen=is_frozen)
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
    keep_training: bool = False,
    is_frozen: bool = False,
) -> ResolvedRun:
    """Resolve a config file, with `key.path=value` overrides, or the folder or name of a run, which is then continued.
    A tag leads to a separate run, beside the one that the config alone leads to; `keep_training` and `is_frozen` are as
    in RunRequest. Raises ConfigError where the config is refused, a tag is given with a run, or overrides with a run
    make another run."""
    path = path_of(target, runs_dir)
    if not path.is_dir():
        config = load_config(path, overrides)
        return run_of_config(config, runs_dir=runs_dir, tag=tag, keep_training=keep_training, is_frozen=is_frozen)
    if tag:
        raise ConfigError(f"{path} is a run: give a config file for a fresh one")
    run = RunDirectory(path)
    config = _continued_config(run, overrides)
    reuse = re.search(_TAG, run.name) is None
    found = ResolvedRun(config=config, run=run, reuse=reuse, is_continued=True)
    if is_frozen:
        return found
    return _placed(found, keep_training=keep_training)


def path_of(target: str | Path, runs_dir: str | Path) -> Path:
    """The path of a file or folder; of a run, if there is no such path and it has this name."""
    path, named = Path(target), Path(runs_dir) / target
    return named if not path.exists() and (named / "config.yaml").is_file() else path


def run_of_config(
    config: RunConfig,
    *,
    runs_dir: str | Path,
    tag: str | None,
    keep_training: bool = False,
    is_frozen: bool = False,
) -> ResolvedRun:
    """The run that a config leads to; for the arguments see resolve_run."""
    run = RunDirectory(Path(runs_dir) / run_name(config, tag=tag))
    found = ResolvedRun(config=config, run=run, reuse=tag is None)
    if is_frozen:
        return dataclasses.replace(found, run=_newest_of(run, config))
    return _placed(found, keep_training=keep_training)


def _placed(asked: ResolvedRun, *, keep_training: bool) -> ResolvedRun:
    """The run in which a config is carried out: its own, or the first one beside it that has begun with the same files.
    Where each has begun with others, a new one; with `keep_training` the newest, which goes on with what differs."""
    newest = None
    for run in _runs_from(asked.run, asked.config):
        if not run.config.is_file():
            break
        differs = what_differs(run, asked.config, dataclasses.replace(asked, run=run).files())
        if not differs:
            return dataclasses.replace(asked, run=run)
        newest = dataclasses.replace(asked, run=run, differs=differs)
    if newest is None:
        return asked
    if keep_training:
        if (why := why_it_cannot_go_on(newest.run, newest.differs)) is not None:
            raise ConfigError(f"{newest.run.name} cannot go on ({first_of(newest.differs)} changed): {why}")
        return newest
    return dataclasses.replace(asked, run=run, is_continued=False, differs=newest.differs, predecessor=newest.run)


def _runs_from(run: RunDirectory, config: RunConfig) -> Iterator[RunDirectory]:
    """A run of a config, and those that come after it: `NAME`, `NAME-2`, `NAME-3`, ..."""
    match = re.fullmatch(rf"({run_name(config)}(?:{_TAG})?)(?:-(\d+))?", run.name)
    first, number = (match[1], match[2]) if match else (run.name, None)
    return map(RunDirectory, islice(numbered(run.root.with_name(first)), int(number or 1) - 1, None))


def newest_run(config: str, overrides: Sequence[str], runs_dir: str) -> RunDirectory:
    """The newest run of a config file's recipe, whatever files it has begun with."""
    return resolve_run(config, overrides, runs_dir=runs_dir, is_frozen=True).run


def _newest_of(run: RunDirectory, config: RunConfig) -> RunDirectory:
    there = [*takewhile(lambda other: other.config.is_file(), _runs_from(run, config))]
    return there[-1] if there else run


_TAG = r"-\d{8}T\d{6}"
"""How the tag of a fresh run looks in its name."""


def start_tag(moment: datetime) -> str:
    """The tag of a fresh or scheduled run: its start in UTC."""
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S")


def _continued_config(run: RunDirectory, overrides: Sequence[str]) -> RunConfig:
    """The config of a run, with changes of its length and of operation alone. Raises ConfigError for others."""
    if not run.config.is_file():
        raise ConfigError(f"{run.root} is no run (it holds no {run.config.name}): give a config file or a run's folder")
    before, config = load_config(run.config), load_config(run.config, overrides)
    others = [key for key, _, _ in changed_keys(before, config) if not is_of(LENGTH | OPERATION, key)]
    if others:
        changes = " ".join(overrides)
        raise ConfigError(
            f"{', '.join(others)}: another value is another run than {run.name}; start it from a config file, or go on "
            f"from a checkpoint of this run: sightline fork {run.name} --step N {changes}"
        )
    return config
