"""The whole configuration of a run."""

import re

from pydantic import Field

from rl_core.config.algorithm import AlgorithmConfig
from rl_core.config.data import DataConfig
from rl_core.config.model import ModelConfig
from rl_core.config.published import PublishedConfig
from rl_core.config.reward import RewardConfig
from rl_core.config.stages import EvaluationConfig, MergeConfig, StorageConfig, TrackingConfig
from rl_core.config.training import (
    ActorConfig,
    ColdStartConfig,
    CriticConfig,
    RolloutConfig,
    TrainerConfig,
)
from rl_core.section import Section

_LONGEST_NAME = 60


def experiment_name(text: str, *, otherwise: str) -> str:
    """A name of an experiment made of any text; `otherwise` where nothing of the text can stay. Other letters than
    those of ASCII go: the name stands in paths, keys and addresses."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME].rstrip("-") or otherwise


class RunConfig(Section):
    """Everything a run depends on, and nothing else: same config, same numbers."""

    experiment: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=_LONGEST_NAME)
    """Name of the experiment: start of the run's name, and the MLflow experiment."""
    seed: int = Field(default=1, ge=0)
    """Keys every random draw of the run."""
    data: DataConfig
    """What is asked."""
    model: ModelConfig
    """Who answers."""
    reward: RewardConfig
    """Who judges."""
    cold_start: ColdStartConfig | None = None
    """Supervised stage before RL; null starts RL from the model as it is."""
    rollout: RolloutConfig = RolloutConfig()
    """How responses are drawn."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """What the update optimises."""
    actor: ActorConfig = ActorConfig()
    """How the update is done."""
    critic: CriticConfig | None = None
    """What judges how a response goes while it is written (`algorithm.advantage: {type: gae}`); null has none."""
    trainer: TrainerConfig = TrainerConfig()
    """How long, and what is kept."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How it is measured."""
    merge: MergeConfig = MergeConfig()
    """What leaves the run."""
    tracking: TrackingConfig = TrackingConfig()
    """Where it is shown."""
    storage: StorageConfig | None = None
    """Where it is copied to; null copies nothing."""
    published: PublishedConfig | None = None
    """The published result that this run is to reproduce; no part of what it computes."""
