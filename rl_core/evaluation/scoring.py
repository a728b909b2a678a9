"""Scoring responses that are there already: no model, the protocol's own builder."""

from collections.abc import Sequence

import numpy as np

from rl_core.evaluation.item_builder import ItemBuilder
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.evaluation.saved_outputs import SavedOutput
from rl_core.progress import Progress
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.sample import RewardSample
from rl_core.types import Prompt

_SOURCE = "saved outputs"
_NOTHING = np.zeros(0, dtype=np.int32)


def score_saved_outputs(
    outputs: Sequence[SavedOutput], protocol: Protocol, *, progress: Progress
) -> list[EvaluationItem]:
    """The items of saved responses, in their order, judged in the isolated pool: a grader may hang on what a model made
    up. A response without a score is wrong, and its item tells the reason."""
    prompts = [_prompt(output) for output in outputs]
    with RewardPool(protocol.reward_config()) as pool, progress.bar(f"score by {protocol.name}", len(outputs)) as bar:
        futures = [
            pool.submit(RewardSample.of_text(prompt, output.response))
            for prompt, output in zip(prompts, outputs, strict=True)
        ]
        pool.flush()
        builder = ItemBuilder(
            mode=protocol.answering.mode,
            accuracy_key=protocol.judging.accuracy_key,
            categories=protocol.categories,
            pool=pool,
        )
        items = []
        for prompt, output, future in zip(prompts, outputs, futures, strict=True):
            items.append(builder.of_text(prompt, output.response, future.result(), sample_index=output.sample_index))
            bar()
        return items


def _prompt(output: SavedOutput) -> Prompt:
    """A prompt as the judge sees it; it was asked elsewhere and has no tokens here."""
    return Prompt(
        uid=output.uid,
        data_source=_SOURCE,
        question=output.question,
        text=output.question,
        answer=output.answer,
        token_ids=_NOTHING,
        engine_token_ids=_NOTHING,
        extra=output.extra,
    )
