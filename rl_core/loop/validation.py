"""Validation during training: responses to the held-out prompts."""

from collections.abc import Sequence
from dataclasses import dataclass

from rl_core.config.run import RunConfig
from rl_core.config.training import VALIDATION_METRICS
from rl_core.evaluation.base_answers import BaseAnswers
from rl_core.evaluation.evaluate import evaluate_prompts, until_stopped
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.result import SOURCE_COLUMN, summarise
from rl_core.progress import Progress
from rl_core.rewards.pool import RewardPool
from rl_core.stop import StopRequest
from rl_core.tools.conversations import Conversing, single_turn
from rl_core.types import Prompt
from rl_core.workers.protocol import WorkerGroup, awake_generator


@dataclass(frozen=True, slots=True)
class Validation:
    """The responses to the held-out prompts at one step."""

    items: Sequence[EvaluationItem]

    @property
    def metrics(self) -> dict[str, float]:
        """Those with the prefix `val/`; an accuracy of each data source too where there are several."""
        result = summarise(self.items)
        assert result.mean_length is not None and result.truncation_rate is not None, "sampled responses have tokens"
        values = (
            *(result.accuracy, float(result.failed_rewards), result.reward_mean),
            *(result.mean_length, result.truncation_rate),
        )
        sources = {
            f"val/{row.value}/accuracy": row.accuracy for row in result.categories if row.column == SOURCE_COLUMN
        }
        return dict(zip(VALIDATION_METRICS, values, strict=True)) | sources


@dataclass(frozen=True, kw_only=True, slots=True)
class Validator:
    """Answers the held-out prompts with the trainer's current weights, in the mode `trainer.val_mode`. Before the first
    step these are the base model's."""

    config: RunConfig
    prompts: Sequence[Prompt]
    rewards: RewardPool
    progress: Progress
    base: BaseAnswers | None = None
    conversing: Conversing = single_turn

    def run(self, workers: WorkerGroup, *, step: int = 0, stop: StopRequest | None = None) -> Validation:
        """Generate and score the responses after a step. Raises Interrupted where `stop` is given and requested."""
        mode = self.config.trainer.val_mode
        if step == 0 and self.base is not None and mode in self.base.items:
            return Validation(self.base.items[mode])
        generate = workers.generate if stop is None else until_stopped(workers.generate, stop)
        with awake_generator(workers):
            items = evaluate_prompts(
                self.prompts,
                generate=self.conversing(generate, workers.policy_version),
                pool=self.rewards,
                config=self.config.evaluation.model_copy(update={"modes": (mode,)}),
                max_response_length=self.config.rollout.max_response_length,
                run_seed=self.config.seed,
                progress=self.progress,
                step=step,
                max_failed_share=self.config.reward.max_failed_share,
            )[mode]
        return Validation(items)
