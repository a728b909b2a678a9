"""Which functions judge a sample: by its data source, with which weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl_core.rewards.spec import RewardSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One function of a route. `lane`: its place in Routing.specs; `name`: prefix of its components."""

    lane: int
    name: str
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The functions that judge a sample together.

    Attributes:
        terms: At least one.
        is_mixture: Whether their weighted sum is the score; else the only one's components are.
        reader: Place of the first term that tells the answer it read; None without one.
    """

    terms: Sequence[Term]
    is_mixture: bool
    reader: int | None

    @property
    def name(self) -> str:
        """The terms' names, for messages."""
        return " + ".join(term.name for term in self.terms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Routing:
    """All functions, each once, and who goes by which.

    Attributes:
        specs: What the scoring processes load.
        by_source: Routes of data sources that have their own.
        fallback: The route of all other samples; None where every source must have its own.
    """

    specs: Sequence[RewardSpec]
    by_source: Mapping[str, Route]
    fallback: Route | None

    def route_of(self, data_source: str) -> Route | None:
        """The route of a source's samples; None when the config gives it none."""
        return self.by_source.get(data_source, self.fallback)
