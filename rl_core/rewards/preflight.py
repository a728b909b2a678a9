"""Trying the reward on the ground truth, before anything expensive starts (design contract 8)."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jinja2

from rl_core.config.training import RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.registry import resolve_reward
from rl_core.rewards.sample import RewardSample
from rl_core.rewards.spec import RewardSpec
from rl_core.types import Prompt, Score


@dataclass(frozen=True, kw_only=True, slots=True)
class GroundTruthTrial:
    """How the reward judged the true answers.

    Attributes:
        responses: The true answer of each prompt, in the form that was scored.
        scores: One a prompt.
        problems: Sentences about what would stop the run; empty when all is well.
        warnings: Sentences about what looks wrong and may be meant.
    """

    responses: Sequence[str] = ()
    scores: Sequence[Score] = ()
    problems: Sequence[str]
    warnings: Sequence[str] = ()


def try_on_ground_truth(
    config: RewardConfig, prompts: Sequence[Prompt], *, target_template: str | None, accuracy_key: str
) -> GroundTruthTrial:
    """Score the true answers of a few prompts in a pool of one process, which ends before this returns.

    Args:
        config: The reward.
        prompts: Some rows; all of them are tried.
        target_template: Jinja text (variables `answer`, `question`) that turns an answer into a response; null takes
            the form that a built-in reward gives its full score to, and the bare answer for a reward of the user's.
        accuracy_key: The component that evaluation will read (`evaluation.accuracy_key`).
    """
    try:
        spec = resolve_reward(config)
        render = _renderer(spec, target_template)
        responses = [render(prompt) for prompt in prompts]
    except (ValueError, jinja2.TemplateError) as error:
        return GroundTruthTrial(problems=[_first_line(error)])
    samples = [RewardSample.of_text(prompt, text) for prompt, text in zip(prompts, responses, strict=True)]
    with RewardPool(config.model_copy(update={"workers": 1})) as pool:
        scores = pool.score_all(samples)
    return GroundTruthTrial(
        responses=responses,
        scores=scores,
        problems=_problems(config, prompts, scores, accuracy_key),
        warnings=_warnings(config, prompts, scores, accuracy_key),
    )


def _renderer(spec: RewardSpec, target_template: str | None) -> Callable[[Prompt], str]:
    if target_template is not None:
        template = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(target_template)
        return lambda prompt: template.render(answer=prompt.answer, question=prompt.question)
    if isinstance(spec.source, str):
        exemplar = importlib.import_module(spec.source).exemplar
        return lambda prompt: str(exemplar(prompt.answer))
    return lambda prompt: prompt.answer


def _problems(config: RewardConfig, prompts: Sequence[Prompt], scores: Sequence[Score], accuracy_key: str) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for prompt, score in zip(prompts, scores, strict=True):
        if score.error is not None:
            reasons.setdefault(score.error, []).append(prompt.uid)
        elif accuracy_key not in score.components:
            known = ", ".join(sorted(score.components))
            reason = f"its components ({known}) lack {accuracy_key!r}: name one of them as evaluation.accuracy_key"
            reasons.setdefault(reason, []).append(prompt.uid)
    return [f"reward {config.function!r} on the ground truth of {_few(uids)}: {why}" for why, uids in reasons.items()]


def _warnings(config: RewardConfig, prompts: Sequence[Prompt], scores: Sequence[Score], accuracy_key: str) -> list[str]:
    scored = [(prompt, score) for prompt, score in zip(prompts, scores, strict=True) if score.error is None]
    wrong = [prompt.uid for prompt, score in scored if score.components.get(accuracy_key, score.overall) <= 0.0]
    if not wrong:
        return []
    return [
        f"reward {config.function!r} calls the true answer wrong for {_few(wrong)} (of {len(prompts)} tried): "
        "look at the answers' form, the target template and the reward"
    ]


def _few(uids: Sequence[str]) -> str:
    shown = ", ".join(uids[:3])
    return f"row {shown}" if len(uids) == 1 else f"{len(uids)} rows ({shown}{', ...' if len(uids) > 3 else ''})"


def _first_line(error: Exception) -> str:
    return f"{error}".splitlines()[0]
