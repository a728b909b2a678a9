"""An evaluation protocol: what a model is asked, how it answers, and how the answers are graded; and whether the
evaluation of a run follows one."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self

from rl_core.config.data import DataConfig
from rl_core.config.reward import RewardConfig
from rl_core.config.run import RunConfig
from rl_core.config.stages import EvaluationConfig
from rl_core.config.tools import ToolsConfig
from rl_core.digests import digest_of, hash_files
from rl_core.evaluation.items import Mode
from rl_core.files import read_utf8
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource
from rl_core.user_code.function import file_named

OWN_WORDS: Final = "the project's own words, in the published format"

_DEFAULT_GRADER: Final = "mathruler"
_REWARDS: Final = Path(__file__).parents[2] / "rewards"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answering:
    """How a response is sampled: greedily at temperature 0; `n` responses to each item."""

    temperature: float
    top_p: float = 1.0
    n: int = 1
    max_response_length: int

    @property
    def mode(self) -> Mode:
        """Greedy at temperature 0."""
        return "greedy" if self.temperature == 0 else "sampled"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judging:
    """How a response is graded: by a reward function, built-in or `path/to/file.py:function`, and the distributions
    that it calls, whose versions count. `rule` says in words which answer is read, what counts as right, over how many
    items."""

    function: str
    kwargs: Mapping[str, float | int | str | bool] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    accuracy_key: str = "accuracy"
    rule: str

    def code_digest(self) -> str:
        """Digest of the file with the function, and of those with all parsers and graders."""
        file = Path(file_named(self.function) or _REWARDS / "builtin" / f"{self.function}.py")
        return digest_of(hash_files([file, _REWARDS / "forms.py", _REWARDS / "grading.py"]))

    def versions(self) -> dict[str, str]:
        """The installed versions of `packages`."""
        return {package: version(package) for package in self.packages}


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """One way to measure a model, named `<items>-<origin>@<version>`.

    Attributes:
        items: The published items on the hub; None where they are files that a person downloads.
        num_items: How many the published numbers count; None where nothing is published.
        prompt, prompt_origin: Jinja text (variable `content`) around each question, and who wrote it.
        max_prompt_length: In tokens; an item with a longer prompt is left out, and the result says how many.
        min_pixels, max_pixels: Area to which images are scaled before the model's processor sees them.
        categories: Columns by whose values the accuracy is also given.
    """

    name: str
    summary: str
    items: HubSource | None
    columns: Columns
    num_items: int | None
    prompt: str
    prompt_origin: str = OWN_WORDS
    max_prompt_length: int
    min_pixels: int
    max_pixels: int
    answering: Answering
    judging: Judging
    categories: tuple[str, ...] = ()

    def with_prompt(self, path: Path) -> Self:
        """The protocol with the prompt text of a file. Raises OSError, and ValueError when it is not UTF-8."""
        text = read_utf8(path)
        origin = f"the text of {path.name}, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"
        return replace(self, prompt=text, prompt_origin=origin)

    def with_samples(self, n: int) -> Self:
        """The protocol with n responses to each item. Raises ValueError for a greedy one, whose responses would all be
        equal."""
        if self.answering.mode == "greedy" and n > 1:
            raise ValueError(f"{self.name} answers greedily: {n} responses to an item would all be equal")
        return replace(self, answering=replace(self.answering, n=n))

    def limits(self) -> dict[str, Any]:
        """The limits of a prompt, as arguments of rl_core.data.row_preparation.Limits."""
        return {name: getattr(self, name) for name in ("max_prompt_length", "min_pixels", "max_pixels")}

    @property
    def conversation(self) -> tuple[ToolsConfig, DataConfig] | None:
        """The tools that the model may call, and the limits of images; None where it answers in one turn."""
        return None

    def chat(self) -> dict[str, Any]:
        """What is around the prompt, as arguments of rl_core.data.chat.ChatRenderer."""
        return {"system_prompt": None}

    def record(self) -> dict[str, Any]:
        """Everything that a result depends on, as JSON values; the digest is made of it."""
        return {
            "name": self.name,
            "prompt": self.prompt.strip(),
            "prompt_origin": self.prompt_origin,
            **self.limits(),
            "answering": asdict(self.answering),
            "judging": {
                **self.judged_by(),
                "accuracy_key": self.judging.accuracy_key,
                "rule": self.judging.rule,
                "versions": self.judging.versions(),
            },
        }

    def judged_by(self) -> dict[str, Any]:
        """The reward with its code, for the record."""
        return {
            "function": Path(self.judging.function).name,
            "kwargs": dict(self.judging.kwargs),
            "code": self.judging.code_digest(),
        }

    def digest(self) -> str:
        """Digest of `record`. Two results may be compared when their digests are equal."""
        return digest_of(self.record())

    @property
    def answer_names(self) -> list[str]:
        """The columns that the answers come from."""
        return [self.columns.answer_key]

    def reward_config(self) -> RewardConfig:
        """The config of the reward that grades the responses."""
        return RewardConfig(function=self.judging.function, kwargs=dict(self.judging.kwargs))

    def evaluation_config(self) -> EvaluationConfig:
        """The config of evaluate_prompts."""
        answering = self.answering
        return EvaluationConfig(
            n=answering.n,
            temperature=answering.temperature,
            top_p=answering.top_p,
            modes=(answering.mode,),
            accuracy_key=self.judging.accuracy_key,
            categories=self.categories,
        )


def departures(config: RunConfig, protocol: Protocol) -> list[str]:
    """Where the evaluation of a config, whose paths can be read from here, differs from a protocol, a sentence each.
    Raises OSError for an unreadable template."""
    return [*_of_asking(config, protocol), *_of_answering(config, protocol), *_of_judging(config, protocol)]


def _of_asking(config: RunConfig, protocol: Protocol) -> Iterator[str]:
    data = config.data
    text = None if data.prompt_template is None else Path(data.prompt_template).read_text(encoding="utf-8").strip()
    if text != protocol.prompt.strip():
        name = "no file" if data.prompt_template is None else Path(data.prompt_template).name
        yield f"the prompt text of {name} is not the protocol's"
    for name in ("min_pixels", "max_pixels", "max_prompt_length"):
        ours, theirs = getattr(data, name), getattr(protocol, name)
        if ours != theirs:
            yield f"data.{name} is {ours}, the protocol's {theirs}"
    if data.system_prompt is not None:
        yield "data.system_prompt adds a system message"
    if config.held_out_tools is not None:
        yield "tools may be called, unless evaluation.tools is none"
    if protocol.items is not None and not _is_same_set(config, protocol.items):
        yield f"data.validation is not {protocol.items.name}"
    if config.evaluation.limit is not None:
        yield f"evaluation.limit takes {config.evaluation.limit} items"


def _is_same_set(config: RunConfig, items: HubSource) -> bool:
    source = config.data.validation
    return isinstance(source, HubSource) and source.name == items.name and source.limit is None


def _of_answering(config: RunConfig, protocol: Protocol) -> Iterator[str]:
    evaluation, answering = config.evaluation, protocol.answering
    if evaluation.modes[0] != answering.mode:
        yield f"evaluation.modes starts with {evaluation.modes[0]}, the protocol is {answering.mode}"
    names = ("n", "temperature", "top_p") if answering.mode == "sampled" else ()
    for name in names:
        ours, theirs = getattr(evaluation, name), getattr(answering, name)
        if ours != theirs:
            yield f"evaluation.{name} is {ours}, the protocol's {theirs}"
    if config.rollout.max_response_length != answering.max_response_length:
        yield (
            f"rollout.max_response_length is {config.rollout.max_response_length}, "
            f"the protocol's {answering.max_response_length}"
        )


def _of_judging(config: RunConfig, protocol: Protocol) -> Iterator[str]:
    judging = protocol.judging
    if config.reward.function != judging.function:
        yield f"reward.function is {config.reward.function}, the protocol's {judging.function}"
    grader = config.reward.kwargs.get("grader", config.reward.grader or _DEFAULT_GRADER)
    if grader != judging.kwargs.get("grader", grader):
        yield f"reward.grader is {grader}, the protocol's {judging.kwargs['grader']}"
    if config.evaluation.accuracy_key != judging.accuracy_key:
        yield f"evaluation.accuracy_key is {config.evaluation.accuracy_key}, the protocol's {judging.accuracy_key}"
