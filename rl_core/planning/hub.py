"""What a config needs of the hub, and whether this machine's cache or the hub has it, asked for with a time limit."""

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, Literal, NamedTuple

from huggingface_hub import DatasetInfo, HfApi, constants
from huggingface_hub.errors import LocalTokenNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from rl_core.config.model import PretrainedModel
from rl_core.config.run import RunConfig
from rl_core.problem import Problem
from rl_core.sources.hub import why_no_config
from rl_core.wording import shortened

SECONDS_OF_PLAN: Final = 1.5
"""`sightline plan`, and the first look of a run, should be quick; a plan says what it could not find out."""

SECONDS_OF_RUN: Final = 10.0
"""A run needs the answer, so it waits longer."""

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HubName:
    """A model or a dataset of the hub: its key, `owner/name`, its branch, tag or commit (None is the main branch), and
    the chosen configuration of a dataset, if any."""

    key: str
    kind: Literal["model", "dataset"]
    repository: str
    revision: str | None
    config: str | None = None

    def __str__(self) -> str:
        return shortened(self.repository if self.revision is None else f"{self.repository} at {self.revision}")

    @property
    def cache(self) -> Path:
        """Its folder in the cache of this machine."""
        return Path(constants.HF_HUB_CACHE) / f"{self.kind}s--{self.repository.replace('/', '--')}"

    @property
    def is_cached(self) -> bool:
        """Whether any of it was fetched before."""
        return is_folder(self.cache)

    @property
    def may_have_changed(self) -> bool:
        """Whether the hub has to be asked. The branch of a cached dataset may have moved, a commit cannot."""
        is_commit = self.revision is not None and _COMMIT.fullmatch(self.revision) is not None
        return not (self.is_cached and (self.kind == "model" or is_commit))


def hub_names(config: RunConfig) -> list[HubName]:
    """Everything that is fetched from the hub: names for which there is no folder on this machine."""
    names = []
    model = config.model.source
    if isinstance(model, PretrainedModel) and not is_folder(model.path) and is_hub_path(model.path):
        names.append(HubName(key="model.source.path", kind="model", repository=model.path, revision=model.revision))
    for key, source in config.sources():
        named = source.repository()
        if named is not None and not is_folder(named.name):
            where = f"{key}.{named.key}"
            names.append(
                HubName(
                    key=where,
                    kind="dataset",
                    repository=named.name,
                    revision=named.revision,
                    config=named.config,
                )
            )
    return names


def is_hub_path(path: str) -> bool:
    """Whether a model's path may be `owner/name` of the hub."""
    return path.count("/") == 1 and not path.startswith((".", os.sep, "~"))


def is_folder(path: str | Path) -> bool:
    """Whether a folder is there."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises on a name that is too long


def offline_problems(config: RunConfig) -> list[Problem]:
    """Names that must be fetched from the hub, or uploaded to it, although HF_HUB_OFFLINE forbids it."""
    if not constants.HF_HUB_OFFLINE:
        return []
    problems = [
        Problem(
            name.key,
            f"{name} must come from the hub, but HF_HUB_OFFLINE is set and {name.cache} does not exist",
            "unset HF_HUB_OFFLINE, or download it on a machine that reaches the hub and copy the cache",
        )
        for name in hub_names(config)
        if not name.is_cached
    ]
    if config.merge.push is not None:
        problems.append(
            Problem(
                "merge.push",
                f"the merged model cannot be uploaded to {config.merge.push} while HF_HUB_OFFLINE is set",
                "unset HF_HUB_OFFLINE, or set merge.push to null and run `sightline merge --push` later",
            )
        )
    return problems


class HubAnswer(NamedTuple):
    """What the hub says about a name: what is wrong with it, if anything is, and whether the hub has answered at
    all."""

    name: HubName
    problem: Problem | None = None
    has_answered: bool = True


def ask_hub(config: RunConfig, *, seconds: float, if_cached: bool = True) -> list[HubAnswer]:
    """Ask the hub for every name whose commit is not known from the cache or, unless `if_cached`, of which the cache
    has nothing; for none while HF_HUB_OFFLINE is set. Nothing is fetched."""
    names = [name for name in hub_names(config) if name.may_have_changed and (if_cached or not name.is_cached)]
    return [] if constants.HF_HUB_OFFLINE else _asked(names, seconds)


def hub_problems(answers: Sequence[HubAnswer]) -> list[Problem]:
    """Problems with names that the hub lacks, and with names that are not in the cache while it cannot be reached."""
    return [answer.problem for answer in answers if answer.problem is not None and not answer.name.is_cached]


@contextmanager
def no_waiting(answers: Sequence[HubAnswer]) -> Iterator[None]:
    """Use only the cache in a `with` block if the hub has not answered, since every library would retry."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not all(answer.has_answered for answer in answers)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _asked(names: Sequence[HubName], seconds: float) -> list[HubAnswer]:
    """The answers that come in time. Late threads go on, since resolving a host's name cannot be interrupted."""
    answers: dict[HubName, HubAnswer] = {}

    def ask(name: HubName) -> None:
        answers[name] = _ask(name, seconds)

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in names]
    until = monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - monotonic()))
    return [answers.get(name) or _unanswered(name, "it did not answer in time", fatal=False) for name in names]


def _ask(name: HubName, seconds: float) -> HubAnswer:
    try:
        info = HfApi().repo_info(name.repository, repo_type=name.kind, revision=name.revision, timeout=2 * seconds)
    except (RepositoryNotFoundError, RevisionNotFoundError, LocalTokenNotFoundError) as error:
        what = f"the hub has no {name.kind} {name}, or none for this account: {_first_line(error)}"
        return HubAnswer(name, Problem(name.key, what, "correct the name or the revision, or log in (HF_TOKEN)"))
    except Exception as error:  # noqa: BLE001 - whatever the HTTP client raises, there is no answer
        return _unanswered(name, _first_line(error), fatal=True)
    if isinstance(info, DatasetInfo) and info.card_data is not None:
        why = why_no_config({"configs": info.card_data.get("configs")}, name.config)
        if why is not None:
            return HubAnswer(name, Problem(name.key, f"{name} {why}", "config is a key beside it"))
    return HubAnswer(name)


def _unanswered(name: HubName, reason: str, *, fatal: bool) -> HubAnswer:
    what = f"{name} must come from the hub, and {constants.ENDPOINT} does not give it: {reason}"
    fix = "see that this machine reaches it (HF_ENDPOINT names another one), or copy the cache of one that does"
    return HubAnswer(name, Problem(name.key, what, fix, fatal=fatal), has_answered=False)


def _first_line(error: Exception) -> str:
    return shortened(f"{error}".strip().partition("\n")[0])
