"""From a response and its score to an evaluation item."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_core.evaluation.items import EvaluationItem, Mode
from rl_core.rewards.pool import RewardPool
from rl_core.types import FinishReason, Prompt, Rollout, Score


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemBuilder:
    """Makes the items of one mode.

    Attributes:
        mode: "greedy" or "sampled".
        accuracy_key: The reward component that says whether a response is right.
        categories: Columns whose values are kept with each item.
        pool: The pool that scored the responses; it knows for which sources the reward has a parser.
    """

    mode: Mode
    accuracy_key: str
    categories: tuple[str, ...]
    pool: RewardPool

    def of_rollout(self, prompt: Prompt, rollout: Rollout, score: Score) -> EvaluationItem:
        """The item of a generated response. Raises ValueError when the score lacks `accuracy_key`."""
        return self._item(
            prompt,
            score,
            response=rollout.text,
            sample_index=rollout.sample_index,
            length=len(rollout.response_ids),
            finish_reason=rollout.finish_reason,
        )

    def of_text(self, prompt: Prompt, response: str, score: Score, *, sample_index: int) -> EvaluationItem:
        """The item of a saved response, whose tokens are not known. Raises ValueError when the score lacks
        `accuracy_key`."""
        return self._item(prompt, score, response=response, sample_index=sample_index, length=None, finish_reason=None)

    def _item(
        self,
        prompt: Prompt,
        score: Score,
        *,
        response: str,
        sample_index: int,
        length: int | None,
        finish_reason: FinishReason | None,
    ) -> EvaluationItem:
        knows_parsing = self.pool.has_parser(prompt.data_source) and score.error is None
        return EvaluationItem(
            uid=prompt.uid,
            data_source=prompt.data_source,
            image_uids=prompt.shown_uids,
            question=prompt.question,
            prompt=prompt.text,
            answer=prompt.answer_text,
            response=response,
            parsed=score.parsed,
            parse_failed=score.parsed is None if knows_parsing else None,
            is_right=_is_right(score, self.accuracy_key),
            components=score.components,
            length=length,
            finish_reason=finish_reason,
            mode=self.mode,
            sample_index=sample_index,
            error=score.error,
            categories=categories_of(prompt.extra, self.categories),
        )


def categories_of(extra: Mapping[str, Any], columns: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """[column] -> the row's values, for the columns that the row has; a list gives several values."""
    found = {column: extra[column] for column in columns if extra.get(column) is not None}
    return {
        column: tuple(map(str, value)) if isinstance(value, list) else (str(value),) for column, value in found.items()
    }


def _is_right(score: Score, accuracy_key: str) -> bool:
    """A component of 0.5 or more means right: some scorers give 0 for a wrong response, others -1."""
    if score.error is not None:
        return False
    if accuracy_key not in score.components:
        known = ", ".join(sorted(score.components))
        raise ValueError(f"evaluation.accuracy_key {accuracy_key!r} is not a component of the reward; it has {known}")
    return score.components[accuracy_key] >= 0.5
