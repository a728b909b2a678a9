"""Keeps, in a run's folder, copies of the templates and of the files with user code that the config names, and
fingerprints of data and weights. So the folder is enough to continue, evaluate, merge and report the run from any
working directory, even if the originals have changed or are gone."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from typing_extensions import override

from rl_core.config.loading import dump_config, load_config
from rl_core.config.model import ModelSource
from rl_core.config.run import RunConfig
from rl_core.digests import RelativeName, digest_of, wrong_size
from rl_core.files import committed_folder, files_below
from rl_core.run_directory import RunDirectory
from rl_core.sources.source import DataSource
from rl_core.user_code.function import file_named
from rl_core.user_code.text import files_of
from tasks.cache.amendments import read_amendments
from tasks.cache.manifests import read_manifest
from tasks.cache.named_files import NamedFiles, WeightFiles
from tasks.cache.stages import stage_digests

_RECORD, _CONFIG = "inputs.json", "config.yaml"

_SOURCES: Final = {"train": "data.train", "validation": "data.validation", "cold_start": "cold_start.source"}

WEIGHTS: Final = "the files of model.source.path"
"""How `changed_inputs` calls the weights of a local checkpoint."""


class KeptFiles(BaseModel, frozen=True):
    """The record of a run's folder `inputs`.

    Attributes:
        directory: The working directory.
        copies: [path of a template or of a file with user code, as in the config] -> its copy, relative to the
            folder.
        fingerprints: [name of a data source: "train", "validation", "cold_start"] -> its hash.
        weights: The files of a local checkpoint; None where the config names none.
    """

    directory: str
    copies: Mapping[str, RelativeName]
    fingerprints: Mapping[str, str]
    weights: WeightFiles | None


class FilesOfRun(NamedFiles):
    """Reads the files that the config of a started run names. Where an original is gone, its copy is read. If the run
    is prepared, data, weights and templates are fixed, even if the originals have changed. If it is frozen, the copies
    of the functions' files are read too; until then the originals are, so that a mistake in them can be corrected."""

    def __init__(
        self, config: RunConfig, run: RunDirectory, kept: KeptFiles, *, is_prepared: bool, is_frozen: bool
    ) -> None:
        super().__init__(paths_from=config.paths_from)
        self._run = run
        self._kept = kept
        self._is_prepared = is_prepared
        self._is_frozen = is_frozen

    @property
    @override
    def directory(self) -> Path:
        folder = Path(self._kept.directory)
        return folder if folder.is_dir() else Path.cwd()

    @override
    def fixed_file(self, path: str) -> Path:
        return self._place(path, prefers_copy=self._is_prepared)

    @override
    def function_file(self, path: str) -> Path:
        return self._place(path, prefers_copy=self._is_frozen)

    @override
    def in_directory(self, path: str) -> str:
        return os.path.normpath(self.directory / path)

    @override
    def checkpoint(self, path: str) -> str:
        return str(self._run.initial_model) if self._is_prepared else super().checkpoint(path)

    @override
    def fingerprint(self, name: str, source: DataSource) -> str:
        if self._is_prepared and name in self._kept.fingerprints:
            return self._kept.fingerprints[name]
        return super().fingerprint(name, source)

    @override
    def weights(self, source: ModelSource) -> WeightFiles | None:
        return self._kept.weights if self._is_prepared else super().weights(source)

    def _place(self, path: str, *, prefers_copy: bool) -> Path:
        original = Path(self.data(path))
        if path not in self._kept.copies:
            return original
        copy = self._run.inputs / self._kept.copies[path]
        first, second = (copy, original) if prefers_copy else (original, copy)
        return first if first.is_file() else second


def files_of_run(config: RunConfig, run: RunDirectory, *, is_frozen: bool = False) -> NamedFiles:
    """How the files that a run's config names are read: from the run's folder, as far as it keeps them; with
    `is_frozen`, or in a finished run, also the functions' files. Raises ValueError where a file is neither there nor
    kept."""
    kept = read_kept(run)
    if kept is None:
        return NamedFiles(paths_from=config.paths_from)
    whole = FilesOfRun(config, run, kept, is_prepared=True, is_frozen=True)
    digests = stage_digests(config, whole, read_amendments(run))
    return FilesOfRun(
        config,
        run,
        kept,
        is_prepared=_is_finished(run, "prepare", digests["prepare"]),
        is_frozen=is_frozen or _is_finished(run, "report", digests["report"]),
    )


def read_kept(run: RunDirectory) -> KeptFiles | None:
    """The record of what a run keeps; None when there is none or it is damaged. The next start of the run writes it."""
    try:
        return KeptFiles.model_validate_json((run.inputs / _RECORD).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def keep_files(run: RunDirectory, config: RunConfig, files: NamedFiles) -> None:
    """Write the folder `inputs`, whole or not at all; it is not touched where it already has the same contents. Raises
    ValueError or OSError where a data source or a file that the config names cannot be read.
    """
    contents = _contents(config, files)
    if _kept_contents(run) == contents:
        return
    with committed_folder(run.inputs) as folder:
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def started_config(run: RunDirectory) -> RunConfig | None:
    """The config with which the run was started last; None where it was not."""
    place = run.inputs / _CONFIG
    return load_config(place) if place.is_file() else None


def changed_inputs(run: RunDirectory, config: RunConfig, files: NamedFiles) -> list[str]:
    """The files and data of the config, by their names in it, that are others than those of this run; empty too where
    the run has not begun. Raises as `keep_files`."""
    kept = read_kept(run)
    if kept is None:
        return []
    now = _contents(config, files)
    found = KeptFiles.model_validate_json(now[_RECORD])
    there = _kept_contents(run)
    changed = [path for path in found.copies if _copy(path, kept, there) != _copy(path, found, now)]
    changed += [
        f"the rows of {_SOURCES[name]}"
        for name, fingerprint in found.fingerprints.items()
        if kept.fingerprints.get(name) != fingerprint
    ]
    # The weights of a hub's name, or of a folder that has gone since, are None.
    has_other_weights = None not in (kept.weights, found.weights) and kept.weights != found.weights
    return [*changed, *([WEIGHTS] if has_other_weights else [])]


def input_digests(run: RunDirectory) -> dict[str, str]:
    """[file or data of the config, by its name in it] -> digest of what this run has of it; empty where it has not
    begun."""
    kept = read_kept(run)
    if kept is None:
        return {}
    there = _kept_contents(run)
    files = {
        path: digest_of({name: content.hex() for name, content in _copy(path, kept, there).items()})
        for path in kept.copies
    }
    return files | {f"the rows of {_SOURCES[name]}": fingerprint for name, fingerprint in kept.fingerprints.items()}


def _copy(path: str, kept: KeptFiles, contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """[name] -> bytes of the copies of a file and of what belongs to it."""
    if path not in kept.copies:
        return {}
    folder = f"{kept.copies[path].partition('/')[0]}/"
    return {name.removeprefix(folder): content for name, content in contents.items() if name.startswith(folder)}


def _kept_contents(run: RunDirectory) -> dict[str, bytes]:
    return {path.relative_to(run.inputs).as_posix(): path.read_bytes() for path in files_below(run.inputs)}


def _contents(config: RunConfig, files: NamedFiles) -> dict[str, bytes]:
    """[name] -> bytes of each file of the folder `inputs`."""
    contents: dict[str, bytes] = {}
    copies = {}
    for number, (path, place, parts) in enumerate(_named(config, files)):
        copies[path] = f"{number}/{place.name}"
        contents |= {f"{number}/{part.relative_to(place.parent).as_posix()}": part.read_bytes() for part in parts}
    sources = {"train": config.data.train, "validation": config.data.validation}
    if config.cold_start is not None and config.cold_start.source is not None:
        sources["cold_start"] = config.cold_start.source
    kept = KeptFiles(
        directory=str(files.directory),
        copies=copies,
        fingerprints={name: files.fingerprint(name, source) for name, source in sources.items()},
        weights=files.weights(config.model.source),
    )
    contents[_RECORD] = kept.model_dump_json(indent=2).encode()
    contents[_CONFIG] = dump_config(config).encode()
    return contents


def _named(config: RunConfig, files: NamedFiles) -> Iterator[tuple[str, Path, list[Path]]]:
    """(path in the config, place where it is read, files that belong to it) of each template and function's file."""
    templates = (config.data.prompt_template, config.data.override_chat_template)
    for path in sorted({path for path in templates if path is not None}):
        place = files.fixed_file(path)
        yield path, place, [place]
    of_tools = [] if config.tools is None else config.tools.files
    of_functions = {*config.reward.files, *config.algorithm.files, *of_tools}
    for path in sorted(of_functions):
        place = files.function_file(path)
        yield path, place, files_of(place)
    of_sources = {path for _, source in config.sources() for path in source.code_paths()}
    family = file_named(config.model.family or "")
    of_sources |= set() if family is None else {family}
    for path in sorted(of_sources - of_functions):
        place = files.fixed_file(path)
        yield path, place, files_of(place)


def _is_finished(run: RunDirectory, stage: str, digest: str) -> bool:
    """Whether a stage has a manifest and every file is there with its size. No file is hashed."""
    manifest = read_manifest(run, stage)
    if manifest is None or manifest.digest != digest:
        return False
    return not any(wrong_size(run.root / path, output) for path, output in manifest.outputs.items())
