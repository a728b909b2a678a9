"""The advantage estimators that a config can choose: each is a file in this folder and a line here."""

from typing import Final

from rl_core.algorithms.advantages import AdvantageSection
from rl_core.algorithms.estimators.custom import CustomAdvantage as CustomAdvantage
from rl_core.algorithms.estimators.dr_grpo import DrGRPO as DrGRPO
from rl_core.algorithms.estimators.gae import GAE as GAE
from rl_core.algorithms.estimators.grpo import GRPO as GRPO
from rl_core.algorithms.estimators.grpo_passk import PassKGRPO as PassKGRPO
from rl_core.algorithms.estimators.reinforce_plus_plus import ReinforcePlusPlus as ReinforcePlusPlus
from rl_core.algorithms.estimators.reinforce_plus_plus_baseline import (
    ReinforcePlusPlusBaseline as ReinforcePlusPlusBaseline,
)
from rl_core.algorithms.estimators.remax import ReMax as ReMax
from rl_core.algorithms.estimators.rloo import RLOO as RLOO
from rl_core.section import choices_in

ESTIMATORS: Final = choices_in(globals(), AdvantageSection)
