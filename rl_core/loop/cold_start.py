"""The cold start: a short stage of supervised fine-tuning on rendered answers."""

from pathlib import Path

import numpy as np
from transformers import AutoTokenizer

from rl_core.config.training import ColdStartConfig
from rl_core.data.loader import PromptLoader
from rl_core.planning.model_tokens import ModelTokens
from rl_core.progress import Progress
from rl_core.stop import StopRequest
from rl_core.templates import target_template
from rl_core.training.optimizer import NonFiniteGradients
from rl_core.types import Prompt, SupervisedExample
from rl_core.workers.protocol import WorkerGroup


class TargetRenderer:
    """Renders a prompt's answer into the response to imitate, with the token that ends it."""

    def __init__(self, template: str, *, model_folder: Path) -> None:
        self._template = target_template(template)
        self._tokenizer = AutoTokenizer.from_pretrained(model_folder, trust_remote_code=False)
        self._end = ModelTokens.read(model_folder).response_ends().of_targets

    def example(self, prompt: Prompt) -> SupervisedExample:
        """What is to be imitated after this prompt."""
        text = self._template.render(answer=prompt.answer_text, question=prompt.question)
        token_ids = [*self._tokenizer.encode(text, add_special_tokens=False), self._end]
        return SupervisedExample(prompt=prompt, target_ids=np.array(token_ids, dtype=np.int32))


def run_cold_start(
    config: ColdStartConfig,
    *,
    loader: PromptLoader,
    targets: TargetRenderer,
    workers: WorkerGroup,
    max_nonfinite_steps: int,
    progress: Progress,
    stop: StopRequest,
) -> dict[str, float]:
    """Take `config.steps` supervised steps. Returns the metrics of the last step, and the mean loss of the last ten.
    Raises NonFiniteGradients if `max_nonfinite_steps` steps in a row were skipped, and Interrupted after the step in
    which a stop was requested."""
    losses: list[float] = []
    metrics: dict[str, float] = {}
    with (
        stop.taking_effect(lambda: "after this step of the cold start, which is made again"),
        progress.bar("cold start", config.steps) as advance,
    ):
        for _ in range(config.steps):
            stop.raise_if_requested()
            metrics = dict(workers.imitate([targets.example(prompt) for prompt in loader.next_batch()]))
            losses.append(metrics["cold_start/loss"])
            if metrics["cold_start/nonfinite_streak"] >= max_nonfinite_steps:
                raise NonFiniteGradients(
                    f"cold start: {max_nonfinite_steps} steps in a row had a non-finite gradient; lower "
                    f"cold_start.optim.lr"
                )
            advance(1, f"loss {losses[-1]:.3f}")
    return metrics | {"cold_start/final_loss": float(np.mean(losses[-10:]))}
