"""What a config needs of the hub, and whether this machine's cache or the hub has it. All names are asked for at the
same time and with a time limit, so that nothing else has to wait for a hub that does not answer."""

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, Literal

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import LocalTokenNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from rl_core.config.model import PretrainedModel
from rl_core.config.run import RunConfig
from rl_core.problem import Problem
from rl_core.wording import shortened

SECONDS_OF_PLAN: Final = 1.5
"""`sightline plan` should be quick, and says what it could not find out."""

SECONDS_OF_RUN: Final = 10.0
"""A run needs the answer, so it waits longer."""

_COMMIT = re.compile(r"[0-9a-f]{40}")

_State = Literal["there", "missing", "away", "silent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class HubName:
    """A model or a dataset that is fetched from the hub.

    Attributes:
        key: Where the config names it.
        kind: Whether it is a model or a dataset.
        repository: `owner/name`.
        revision: Branch, tag or commit; None is the main branch.
    """

    key: str
    kind: Literal["model", "dataset"]
    repository: str
    revision: str | None

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
            names.append(HubName(key=where, kind="dataset", repository=named.name, revision=named.revision))
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


@dataclass(frozen=True, kw_only=True, slots=True)
class HubAnswer:
    """The hub's answer for a name: "there"; "missing", or not visible for this account; "away": the hub cannot be
    reached; "silent": it has not answered in time."""

    name: HubName
    state: _State
    reason: str = ""


def ask_hub(config: RunConfig, *, seconds: float) -> list[HubAnswer]:
    """Ask the hub for every name whose commit is not known from the cache. Nothing is asked while HF_HUB_OFFLINE is
    set."""
    names = [name for name in hub_names(config) if name.may_have_changed]
    return [] if constants.HF_HUB_OFFLINE else _asked(names, seconds)


def hub_problems(answers: Sequence[HubAnswer]) -> list[Problem]:
    """Problems with names that are missing on the hub, and names that are not in the cache while the hub cannot be
    reached."""
    return [problem for answer in answers if not answer.name.is_cached for problem in _problems(answer)]


@contextmanager
def no_waiting(answers: Sequence[HubAnswer]) -> Iterator[None]:
    """Use only the cache in a `with` block if the hub has not answered, since every library would retry again and
    again."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or any(answer.state in ("away", "silent") for answer in answers)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _problems(answer: HubAnswer) -> Iterator[Problem]:
    name, where = answer.name, answer.name.key
    if answer.state == "missing":
        what = f"the hub has no {name.kind} {name}, or none for this account: {answer.reason}"
        yield Problem(where=where, what=what, fix="correct the name or the revision, or log in (HF_TOKEN)")
    elif answer.state == "away":
        yield Problem(
            where=where,
            what=f"{name} must come from the hub, and {constants.ENDPOINT} does not give it: {answer.reason}",
            fix="see that this machine reaches it (HF_ENDPOINT names another one), or copy the cache of one that does",
        )
    elif answer.state == "silent":
        yield Problem(
            where=where,
            what=f"{name} must come from the hub, and {constants.ENDPOINT} did not answer in time",
            fix="see that this machine reaches it (HF_ENDPOINT names another one)",
            fatal=False,
        )


def _asked(names: Sequence[HubName], seconds: float) -> list[HubAnswer]:
    """The answers that come in time. Threads that are late go on by themselves, since the resolution of a host's name
    cannot be interrupted."""
    answers: dict[HubName, HubAnswer] = {}

    def ask(name: HubName) -> None:
        answers[name] = _ask(name, seconds)

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in names]
    until = monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - monotonic()))
    return [answers.get(name) or HubAnswer(name=name, state="silent") for name in names]


def _ask(name: HubName, seconds: float) -> HubAnswer:
    api = HfApi()
    try:
        api.repo_info(name.repository, repo_type=name.kind, revision=name.revision, timeout=2 * seconds)
    except (RepositoryNotFoundError, RevisionNotFoundError, LocalTokenNotFoundError) as error:
        return HubAnswer(name=name, state="missing", reason=_first_line(error))
    except Exception as error:  # noqa: BLE001 - whatever the HTTP client raises, there is no answer
        return HubAnswer(name=name, state="away", reason=_first_line(error))
    return HubAnswer(name=name, state="there")


def _first_line(error: Exception) -> str:
    return shortened(f"{error}".strip().partition("\n")[0])
