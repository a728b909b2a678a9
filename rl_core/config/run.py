"""The whole configuration of a run."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, model_validator

from rl_core.config.algorithm import AlgorithmConfig
from rl_core.config.cluster import ClusterConfig
from rl_core.config.data import DataConfig
from rl_core.config.model import ModelConfig
from rl_core.config.reward import RewardConfig
from rl_core.config.stages import (
    EvaluationConfig,
    MergeConfig,
    PlanningConfig,
    PublishedConfig,
    StorageConfig,
    TrackingConfig,
)
from rl_core.config.tools import ToolsConfig
from rl_core.config.training import (
    ActorConfig,
    ColdStartConfig,
    CriticConfig,
    RolloutConfig,
    TrainerConfig,
)
from rl_core.section import Section
from rl_core.sources.source import DataSource

_LONGEST_NAME = 60


def experiment_name(text: str, *, otherwise: str) -> str:
    """Turn any text into the name of an experiment; `otherwise` where no character of it can stay. The name holds ASCII
    letters, digits and hyphens only, because it becomes part of paths, keys and addresses."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME].rstrip("-") or otherwise


class ForkedFrom(Section):
    """The checkpoint from which a run goes on; `sightline fork` writes it."""

    run: str
    """Name of the run, which lies in the same folder of runs."""
    step: int = Field(ge=1)
    """The step of the checkpoint."""


class RunConfig(Section):
    """Everything that a run depends on: equal configs give equal numbers."""

    experiment: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=_LONGEST_NAME)
    """Name of the experiment, with which the run's name begins."""
    paths_from: tuple[str, ...] = ()
    """Folders in which the files of the config are looked for, before the working directory. By default the folder of
    the config file, then those of the files that it extends."""
    seed: int = Field(default=1, ge=0, lt=1 << 63)
    """Keys every random draw of the run."""
    data: DataConfig
    """Training rows, held-out rows, prompts."""
    model: ModelConfig
    """The model that is trained."""
    reward: RewardConfig
    """The functions that score responses."""
    cold_start: ColdStartConfig | None = None
    """Supervised stage before RL; null starts RL from the model as it is."""
    rollout: RolloutConfig = RolloutConfig()
    """How responses are generated in training."""
    tools: ToolsConfig | None = None
    """Tools that the model may call while it answers; null for responses of one turn."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """Advantages, policy loss, KL."""
    actor: ActorConfig = ActorConfig()
    """The policy update: batch sizes and optimizer."""
    critic: CriticConfig | None = None
    """The critic; needed by `algorithm.advantage: {type: gae}`, null otherwise."""
    trainer: TrainerConfig = TrainerConfig()
    """Length of the run, validation, checkpoints."""
    cluster: ClusterConfig = ClusterConfig()
    """The workers that train one model together."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How the base and the trained model are measured."""
    merge: MergeConfig = MergeConfig()
    """The merged model that the run writes at its end."""
    tracking: TrackingConfig = TrackingConfig()
    """Trackers that show the run."""
    storage: StorageConfig | None = None
    """Where the run is copied to; null copies nothing."""
    planning: PlanningConfig = PlanningConfig()
    """Lengths that `sightline plan` expects."""
    forked_from: ForkedFrom | None = None
    """The run and step from which this run goes on with another recipe; null begins at step 1."""
    published: PublishedConfig | None = None
    """The published result that this run is to reproduce."""

    def sources(self) -> Iterator[tuple[str, DataSource]]:
        """Every data source with its key; a mixture yields each of its sources."""
        splits: dict[str, DataSource] = {"data.train": self.data.train, "data.validation": self.data.validation}
        if self.cold_start is not None and self.cold_start.source is not None:
            splits["cold_start.source"] = self.cold_start.source
        for key, source in splits.items():
            parts = {f"{key}.sources.{name}": part for name, part in source.parts.items()}
            yield from (parts or {key: source}).items()

    @property
    def most_sampled(self) -> int:
        """Most tokens that the model samples for a response, in all its turns."""
        return self.rollout.max_response_length * (1 if self.tools is None else self.tools.max_turns)

    @property
    def longest_response(self) -> int:
        """Most tokens of a response: what is sampled, and the results of tools between the turns."""
        tools = self.tools
        return self.most_sampled + (0 if tools is None else (tools.max_turns - 1) * tools.max_result_length)

    @property
    def longest_prompt(self) -> int:
        """Most tokens of a prompt, with what an environment shows at its end."""
        return self.data.max_prompt_length + (0 if self.tools is None else self.tools.longest_opening)

    @property
    def held_out_tools(self) -> ToolsConfig | None:
        """The tools with which held-out rows are answered: in rounds, so that the answers repeat."""
        if self.tools is None or self.evaluation.tools == "none":
            return None
        return self.tools.model_copy(update={"schedule": "rounds"})

    @property
    def answer_names(self) -> list[str]:
        """The columns that the answers come from as a whole; and `answer`, for sources whose columns have no names."""
        columns = (getattr(source, "columns", None) for _, source in self.sources())
        names = [each.answer_key for each in columns if each is not None]
        return [*dict.fromkeys(["answer", *(name for name in names if "." not in name)])]

    @model_validator(mode="before")
    @classmethod
    def _correct_stale_rollouts(cls, tree: Any) -> Any:
        """Where rollouts wait for a step, and nothing is said about how that is corrected, correct it by the decoupled
        loss, which learns as fast as without the wait (docs/algorithms.md, "One step off-policy")."""
        match tree:
            case {"rollout": {"staleness": 1}}:
                algorithm = tree.get("algorithm", {})
            case _:
                return tree
        match algorithm:
            # A kept surplus has log-probs that cannot be computed again, because its weights are gone.
            case {"old_log_probs": _} | {"correction": None} | {"online_filtering": {"surplus": "keep"}}:
                return tree
            case Mapping():
                corrected = {"correction": {"type": "tis"}, **algorithm, "old_log_probs": "recompute"}
                return {**tree, "algorithm": corrected}
            case _:
                return tree
