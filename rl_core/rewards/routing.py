"""Which reward functions score a sample, by its data source, and with which weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl_core.rewards.spec import RewardSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One function of a route.

    Attributes:
        function_index: Its index in Routing.specs.
        name: Prefix of its components.
        weight: Weight of its `overall` in a mixture.
    """

    function_index: int
    name: str
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The functions that score a sample together.

    Attributes:
        terms: At least one.
        is_mixture: Whether the score is the weighted sum of the terms; if not, it is the score of the only term.
        reader: Index of the first term whose function has a parser; None if there is none.
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
    """All reward functions, each once, and the routes of the data sources.

    Attributes:
        specs: The functions that the scoring processes load.
        by_source: Routes of the data sources that have their own.
        fallback: The route of all other samples; None if every data source must have its own.
    """

    specs: Sequence[RewardSpec]
    by_source: Mapping[str, Route]
    fallback: Route | None

    def route_of(self, data_source: str) -> Route | None:
        """The route of a data source's samples; None if the config has none."""
        return self.by_source.get(data_source, self.fallback)
