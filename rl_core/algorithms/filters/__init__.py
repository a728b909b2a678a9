"""The group filters that a config can choose: each is a file in this folder and a line here."""

from typing import Final

from rl_core.algorithms.filters.bounds import BoundsFilter as BoundsFilter
from rl_core.algorithms.filters.custom import CustomFilter as CustomFilter
from rl_core.algorithms.group_filter import GroupFilterSection
from rl_core.section import choices_in

FILTERS: Final = choices_in(globals(), GroupFilterSection)
