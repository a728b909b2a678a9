"""The section `reward`: the functions that score a response, and limits on their time and memory."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from pydantic import Field, field_validator
from typing_extensions import override

from rl_core.problem import Problem
from rl_core.section import Kwargs, Section, refuse_secrets
from rl_core.user_code.function import file_named, is_user_function, nearest
from rl_core.wording import shortened

OVERALL: Final = "overall"
"""The component that is optimised."""

RewardType = Literal["batch", "sequential", "trl", "verl"]

_JUDGED: Final = (OVERALL, "accuracy", "format")

COMPONENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "choice": _JUDGED,
    "count": _JUDGED,
    "dapo": (OVERALL, "accuracy", "accuracy_normalized", "overlong"),
    "format": (OVERALL,),
    "geoqa": _JUDGED,
    "length": (OVERALL,),
    "math": _JUDGED,
    "overlong": (OVERALL,),
    "r1v": _JUDGED,
    "repetition": (OVERALL,),
}
"""[built-in reward] -> the components that it returns; a test compares them with what the functions do."""

_GRADED: Final = ("math", "r1v")

_OWN_METRICS: Final = frozenset({"failed", "greedy", "group_std", "not_given", "zero_std_groups"})
"""The metrics `reward/NAME` that are not means of a component."""

_METRIC_ENDINGS: Final = ("/mean", "/mean_where_given", "/given_share")


def mean_metric(component: str) -> str:
    """The metric that is the mean of a component over all scores: `reward/NAME`, or `reward/NAME/mean` if that could be
    another metric. It depends on the name alone, and no two components have the same one."""
    is_taken = component in _OWN_METRICS or component.endswith(_METRIC_ENDINGS)
    return f"reward/{component}/mean" if is_taken else f"reward/{component}"


def component_of(metric: str) -> str | None:
    """The component of which a metric is the mean over all scores; None if it is another metric."""
    named = metric.removeprefix("reward/")
    return next((name for name in (named, named.removesuffix("/mean")) if mean_metric(name) == metric), None)


class RewardTerm(Section):
    """One function of a weighted sum."""

    function: str
    """A built-in, `path/to/file.py:function`, or `package.module:function` of an installed package."""
    weight: float = 1.0
    """Factor of the function's `overall` in the sum, negative for a penalty."""
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]+$")
    """Prefix of the function's components in metrics; null takes the function's name."""
    kwargs: Kwargs = {}
    """Keyword arguments of the function."""
    reward_type: RewardType | None = None
    """How the function is called where its file does not show it: in EasyR1's interface (`batch`, `sequential`), in
    TRL's or in verl's."""

    _secrets_are_refused = field_validator("kwargs")(refuse_secrets)

    @override
    def problems(self) -> Iterator[Problem]:
        yield from _unknown_problems(self.function)

    @property
    def label(self) -> str:
        """`name`, or the function's own name."""
        return self.name or self.function.rpartition(":")[2]


class RewardChoice(Section):
    """One function, or a weighted sum of several."""

    function: str | None = None
    """A built-in (`choice`, `count`, `dapo`, `format`, `geoqa`, `length`, `math`, `overlong`, `r1v`, `repetition`),
    `path/to/file.py:function`, or `package.module:function` of an installed package; null where `mixture` is given."""
    kwargs: Kwargs = {}
    """Keyword arguments of the function."""
    reward_type: RewardType | None = None
    """How the function is called where its file does not show it: in EasyR1's interface (`batch`, `sequential`), in
    TRL's or in verl's."""
    mixture: tuple[RewardTerm, ...] = ()
    """Functions whose weighted sum is `overall`; the components of all but the first get their function's name as a
    prefix (`length/overall`)."""

    _secrets_are_refused = field_validator("kwargs")(refuse_secrets)

    @override
    def problems(self) -> Iterator[Problem]:
        if self.function is not None:
            yield from _unknown_problems(self.function)
        if self.function is not None and self.mixture:
            yield Problem(
                "mixture",
                "a function and a mixture are both given",
                f"make {self.function} a part of the mixture, and the function null",
            )
        if not self.terms and not self.may_be_empty:
            yield Problem("function", "no function is named", "name a function here, or a mixture of functions")
        if self.function is None and (self.kwargs or self.reward_type):
            yield Problem(
                "kwargs", "there is no function for kwargs or reward_type", "give them to the parts of the mixture"
            )
        for name, count in Counter(term.label for term in self.mixture).items():
            if count > 1:
                yield Problem(
                    "mixture",
                    f"{count} of its functions are called {name!r}, so their components cannot be told apart",
                    "give each a name of its own",
                )
        if self.mixture and all(term.weight == 0.0 for term in self.mixture):
            yield Problem("mixture", "every weight is 0, so every reward would be 0", "give a weight to one of them")

    @property
    def may_be_empty(self) -> bool:
        """Whether rows need no function from here."""
        return False

    @property
    def components(self) -> tuple[str, ...] | None:
        """Every component that is returned; None where that depends on a user function. The components of a mixture's
        first term keep their names; those of the others, and every `overall`, get the name of their term as a
        prefix."""
        if any(term.function not in COMPONENTS for term in self.terms):
            return None
        if self.function is not None:
            return COMPONENTS[self.function]
        named = [
            name if place == 0 and name != OVERALL else f"{term.label}/{name}"
            for place, term in enumerate(self.mixture)
            for name in COMPONENTS[term.function]
        ]
        return tuple(dict.fromkeys([OVERALL, *named]))

    @property
    def terms(self) -> tuple[RewardTerm, ...]:
        """The functions; a single function has weight 1. Empty where neither a function nor a mixture is given."""
        if self.function is None:
            return self.mixture
        return (RewardTerm(function=self.function, kwargs=self.kwargs, reward_type=self.reward_type),)


class RewardConfig(RewardChoice):
    """The functions that score a response, and limits on their time and memory."""

    by_source: dict[str, RewardChoice] = {}
    """Other functions for the rows of some data sources, by the name of the source."""
    grader: Literal["mathruler", "math_verify"] | None = None
    """Library with which `math` and `r1v` compare answers; null is mathruler, as in EasyR1. `geoqa` always takes
    math_verify."""
    workers: int = Field(default=2, ge=1, le=256)
    """Processes that call reward functions."""
    async_calls: int = Field(default=16, ge=1, le=1024)
    """Calls of an `async def` function that a process has under way at one time. They begin together, and the next ones
    when all of them have ended."""
    timeout_seconds: float = Field(default=10.0, gt=0.0)
    """Time limit of one call; a sample whose call takes longer has no score."""
    batch_timeout_seconds: float = Field(default=120.0, gt=0.0)
    """Time limit of a call with a whole batch (REWARD_TYPE batch); if it fails, the samples are scored one by one."""
    load_timeout_seconds: float = Field(default=120.0, gt=0.0)
    """Time limit of a reward file's import in each process, and what the first call there may take longer than later
    ones."""
    memory_limit_gib: float = Field(default=4.0, gt=0.0)
    """Address space of each of these processes, in GiB."""
    max_failed_share: float = Field(default=0.05, ge=0.0, le=1.0)
    """The run stops when the calls for more than this share of a step's samples failed, or of the responses of a
    validation or an evaluation."""

    @override
    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        functions = {term.function for _, term in self.keyed_terms()}
        if self.grader is not None and not functions & set(_GRADED):
            yield Problem(
                "grader",
                f"no configured reward uses {self.grader}; only {' and '.join(_GRADED)} do",
                "set it to null, or use one of these rewards",
            )

    @property
    @override
    def may_be_empty(self) -> bool:
        return bool(self.by_source)

    def choices(self) -> Iterator[tuple[str, RewardChoice]]:
        """Every choice with its key: the choice for all rows, then the choices for single data sources."""
        yield "reward", self
        for source, choice in self.by_source.items():
            yield f"reward.by_source.{source}", choice

    def keyed_terms(self) -> Iterator[tuple[str, RewardTerm]]:
        """Every function with its key."""
        for key, choice in self.choices():
            for place, term in enumerate(choice.terms):
                yield (f"{key}.function" if choice.function else f"{key}.mixture.{place}.function"), term

    @property
    def files(self) -> list[str]:
        """The files of all functions as the config names them, each once and sorted."""
        return sorted({path for _, term in self.keyed_terms() if (path := file_named(term.function)) is not None})

    @property
    def user_functions(self) -> list[str]:
        """The functions that are not built in, as the config names them, each once and sorted."""
        return sorted({term.function for _, term in self.keyed_terms() if is_user_function(term.function)})

    @property
    def description(self) -> str:
        """The functions in words: "math", "math + 0.5 length", "count (clevr), math (others)"."""
        words = {key: _words(choice) for key, choice in self.choices() if choice.terms}
        others = words.pop("reward", None)
        named = [f"{text} ({key.removeprefix('reward.by_source.')})" for key, text in words.items()]
        if others is None:
            return ", ".join(named)
        return ", ".join([*named, f"{others} (others)"]) if named else others


def _unknown_problems(function: str) -> Iterator[Problem]:
    if function not in COMPONENTS and not is_user_function(function):
        yield Problem(
            "function",
            f"{shortened(function)!r} is no built-in reward{nearest(function, COMPONENTS)}",
            "correct the name; a function of your own is written path/to/file.py:function",
        )


def _words(choice: RewardChoice) -> str:
    if choice.function is not None:
        return choice.function
    return " + ".join(t.function if t.weight == 1.0 else f"{t.weight:g} {t.function}" for t in choice.mixture)
