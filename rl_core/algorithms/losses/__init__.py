"""The policy losses that a config can choose: each is a file in this folder and a line here."""

from typing import Final

from rl_core.algorithms.losses.cispo import CISPOLoss as CISPOLoss
from rl_core.algorithms.losses.custom import CustomLoss as CustomLoss
from rl_core.algorithms.losses.gspo import GSPOLoss as GSPOLoss
from rl_core.algorithms.losses.gspo_token import GSPOTokenLoss as GSPOTokenLoss
from rl_core.algorithms.losses.ppo import PPOLoss as PPOLoss
from rl_core.algorithms.losses.sapo import SAPOLoss as SAPOLoss
from rl_core.algorithms.policy_loss import PolicyLossSection
from rl_core.section import choices_in

LOSSES: Final = choices_in(globals(), PolicyLossSection)
