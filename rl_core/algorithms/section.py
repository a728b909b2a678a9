"""The base class of the sections of losses, estimators and filters."""

from rl_core.section import Section


class AlgorithmSection(Section):
    """A part of the algorithm that is chosen by its `type`."""

    type: str

    @property
    def label(self) -> str:
        """Its name on pages and in tables."""
        return self.type
