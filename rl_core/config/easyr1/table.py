"""Every key of EasyR1, in the order of its configuration."""

from typing import Final

from rl_core.config.easyr1.key import Key
from rl_core.config.easyr1.keys_data import ALGORITHM, DATA
from rl_core.config.easyr1.keys_trainer import TRAINER
from rl_core.config.easyr1.keys_worker import WORKER

KEYS: Final[dict[str, Key]] = {key.name: key for key in (*DATA, *ALGORITHM, *WORKER, *TRAINER)}
