"""What a run keeps of what its config names: copies of templates and of the files with a user's code, and what data and
weights were. So its folder is enough to continue, evaluate, merge and report it from any working directory, whatever
became of the originals."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rl_core.config.model import ModelSource
from rl_core.config.run import RunConfig
from rl_core.files import committed_folder, files_below, relative_name
from rl_core.planning.source_rules import configured_sources
from rl_core.run_directory import RunDirectory
from rl_core.sources.source import DataSource
from rl_core.user_code.files import files_of
from tasks.cache.manifests import read_manifest
from tasks.cache.named_files import NamedFiles, WeightFiles
from tasks.cache.stages import stage_digests

_RECORD = "inputs.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptFiles:
    """The record of a run's folder `inputs`.

    Attributes:
        directory: Where relative paths of the config started.
        copies: Template or file with a user's code as the config has it -> its copy, relative to the folder.
        fingerprints: Hash of each data source by its name ("train", "validation", "cold_start").
        weights: The files of a local checkpoint; None where the config names none.
    """

    directory: str
    copies: Mapping[str, str]
    fingerprints: Mapping[str, str]
    weights: WeightFiles | None


class FilesOfRun(NamedFiles):
    """What a run's config names, read for a run that was begun before.

    Everything is read from the copies where the original is gone.

    Args:
        run: The run.
        kept: Its record.
        is_prepared: Whether data, weights and templates are what they were, whatever became of the originals.
        is_settled: Whether the files of the functions are, too. Until then they are read where they were, so that a
            mistake in them can be mended.
    """

    def __init__(self, run: RunDirectory, kept: KeptFiles, *, is_prepared: bool, is_settled: bool) -> None:
        super().__init__()
        self._run = run
        self._kept = kept
        self._is_prepared = is_prepared
        self._is_settled = is_settled

    @property
    def directory(self) -> Path:
        """Where relative paths of the config started, where that is still a folder of this machine."""
        folder = Path(self._kept.directory)
        return folder if folder.is_dir() else Path.cwd()

    def template(self, path: str) -> Path:
        """As of NamedFiles."""
        return self._place(path, prefers_copy=self._is_prepared)

    def function_file(self, path: str) -> Path:
        """As of NamedFiles."""
        return self._place(path, prefers_copy=self._is_settled)

    def source_code(self, path: str) -> Path:
        """As of NamedFiles."""
        return self._place(path, prefers_copy=self._is_prepared)

    def data(self, path: str) -> str:
        """As of NamedFiles."""
        return os.path.normpath(self.directory / path)

    def checkpoint(self, path: str) -> str:
        """As of NamedFiles: what was prepared is the model that the config names."""
        if self._is_prepared:
            return str(self._run.initial_model)
        original = self.data(path)
        return original if Path(original).is_dir() else path

    def fingerprint(self, name: str, source: DataSource) -> str:
        """As of NamedFiles."""
        if self._is_prepared and name in self._kept.fingerprints:
            return self._kept.fingerprints[name]
        return super().fingerprint(name, source)

    def weights(self, source: ModelSource) -> WeightFiles | None:
        """As of NamedFiles."""
        return self._kept.weights if self._is_prepared else super().weights(source)

    def _place(self, path: str, *, prefers_copy: bool) -> Path:
        original = Path(self.data(path))
        if path not in self._kept.copies:
            return original
        copy = self._run.inputs / self._kept.copies[path]
        first, second = (copy, original) if prefers_copy else (original, copy)
        return first if first.is_file() else second


def files_of_run(config: RunConfig, run: RunDirectory, *, is_settled: bool = False) -> NamedFiles:
    """How what a run's config names is read: from its own folder, as far as it keeps it. What was prepared stays
    prepared.

    Args:
        config: The run's config.
        run: The run, begun or not.
        is_settled: Whether its functions are no longer to be mended; of a finished run they never are.

    Raises:
        ValueError: a file that the config names can be read nowhere.
    """
    kept = read_kept(run)
    if kept is None:
        return NamedFiles()
    digests = stage_digests(config, FilesOfRun(run, kept, is_prepared=True, is_settled=True))
    return FilesOfRun(
        run,
        kept,
        is_prepared=_stands(run, "prepare", digests["prepare"]),
        is_settled=is_settled or _stands(run, "report", digests["report"]),
    )


def read_kept(run: RunDirectory) -> KeptFiles | None:
    """What the run keeps; None when it keeps nothing, or what it says is damaged: it is written anew by its next
    start."""
    try:
        kept = KeptFiles(**json.loads((run.inputs / _RECORD).read_text(encoding="utf-8")))
        for copy in kept.copies.values():
            relative_name(copy)
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None
    return kept


def keep_files(run: RunDirectory, config: RunConfig, files: NamedFiles) -> None:
    """Write the folder `inputs`, whole or not at all; it is left alone where it says the same already.

    Raises:
        ValueError: a data source cannot be read.
        OSError: a file that the config names cannot be read, or the folder cannot be written.
    """
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
    contents[_RECORD] = (json.dumps(asdict(kept), indent=2, sort_keys=True) + "\n").encode()
    if _contents_of(run.inputs) == contents:
        return
    with committed_folder(run.inputs) as folder:
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def _named(config: RunConfig, files: NamedFiles) -> Iterator[tuple[str, Path, list[Path]]]:
    """Each template and file with a user's code as the config has it, where it is read, and the files that go with
    it."""
    templates = (config.data.prompt_template, config.data.override_chat_template)
    for path in sorted({path for path in templates if path is not None}):
        place = files.template(path)
        yield path, place, [place]
    of_functions = {*config.reward.files, *config.algorithm.files}
    for path in sorted(of_functions):
        place = files.function_file(path)
        yield path, place, files_of(place)
    of_sources = {path for _, source in configured_sources(config) for path in source.code_paths()}
    for path in sorted(of_sources - of_functions):
        place = files.source_code(path)
        yield path, place, files_of(place)


def _contents_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files_below(folder)}


def _stands(run: RunDirectory, stage: str, digest: str) -> bool:
    """Whether a stage has left its manifest, and every file is there in its size: a look that takes no time."""
    manifest = read_manifest(run, stage)
    if manifest is None or manifest.digest != digest:
        return False
    files = {run.root / path: output.size for path, output in manifest.outputs.items()}
    return all(file.is_file() and file.stat().st_size == size for file, size in files.items())
