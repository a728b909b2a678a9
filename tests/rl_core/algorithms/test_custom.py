"""Functions of the user's in the place of a loss, an estimator or a filter."""

import operator
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_core.algorithms.advantages import AdvantageInputs
from rl_core.algorithms.estimators import CustomAdvantage
from rl_core.algorithms.filters import CustomFilter
from rl_core.algorithms.losses import CustomLoss, PPOLoss
from rl_core.algorithms.policy_loss import ResponseTokens
from rl_core.algorithms.trial import advantage_doubts, advantage_problem, filter_problem, loss_doubts, loss_problem

EXAMPLES = Path(__file__).parents[3] / "configs" / "extensions"
IMPORTS = "import torch\nfrom rl_core.algorithms.policy_loss import PolicyLoss\n"
PPO = PPOLoss().model_dump(exclude={"type"})
INPUTS = AdvantageInputs(token_rewards=[[np.array([0.0, 1.0]), np.zeros(1)]])

pytestmark = pytest.mark.usefixtures("own_imports")


def function(folder: Path, text: str, name: str = "mine") -> str:
    path = folder / "file_of_mine.py"
    path.write_text(IMPORTS + text)
    return f"{path}:{name}"


def matches(found: str | None, words: str) -> bool:
    """Whether a problem has these words; without words there is none."""
    return found is None if words == "" else found is not None and words in found


def all_match(found: Sequence[str], expected: Sequence[str]) -> bool:
    return len(found) == len(expected) and all(map(operator.contains, found, expected))


def made_up_tokens() -> ResponseTokens:
    generator = torch.Generator().manual_seed(1)
    log_probs, old, advantages = (torch.randn(5, generator=generator) for _ in range(3))
    return ResponseTokens(
        log_probs=log_probs.requires_grad_(), old_log_probs=old, advantages=advantages, lengths=[2, 3]
    )


@pytest.mark.parametrize(
    ("definition", "kwargs", "expected"),
    [
        ("def mine(tokens): ...", {}, []),
        ("def mine(tokens, /, low=1, *, high): ...", {"high": 1}, []),
        ("def mine(*inputs, **kwargs): ...", {"any": 1}, []),
        ("from json import loads as mine", {"any": 1}, []),
        ("import functools\n@functools.cache\ndef mine(): ...", {"any": 1}, []),
        ("def mine(): ...", {}, ["function: `mine` takes no input"]),
        ("async def mine(tokens): ...", {}, ["function: `mine` is an `async def`"]),
        ("def mine(tokens, low, *, high): ...", {}, ["kwargs: `mine` wants low, high"]),
        ("def mine(tokens, low=1): ...", {"lo": 1}, ["kwargs: `mine` takes no lo; did you mean `low`?"]),
        ("def mine(tokens): ...", {"tokens": 1}, ["kwargs: `mine` takes no tokens"]),
        ("def yours(tokens): ...", {}, ["defines no `mine`"]),
        ("def mine(tokens) ...", {}, ["is no Python: line 3"]),
    ],
)
def test_the_text_of_a_function_shows_its_problems_before_it_is_imported(tmp_path, definition, kwargs, expected):
    custom = CustomLoss(function=function(tmp_path, definition), kwargs=kwargs)
    problems = [f"{problem.where}: {problem.what}" for problem in custom.problems()]
    assert all_match(problems, expected)


def test_a_function_has_its_arguments_and_gives_the_loss(tmp_path):
    text = (
        "from rl_core.algorithms.losses import PPOLoss\n"
        "def mine(tokens, *, scale, **options):\n"
        "    loss = PPOLoss(**options).loss(tokens)\n"
        "    return PolicyLoss(per_token=scale * loss.per_token, logged=loss.logged)\n"
    )
    tokens, kwargs = made_up_tokens(), {"scale": 2.0, **PPO}
    mine, ppo = CustomLoss(function=function(tmp_path, text), kwargs=kwargs).loss(tokens), PPOLoss().loss(tokens)
    assert torch.equal(mine.per_token, 2.0 * ppo.per_token)
    assert mine.logged.keys() == ppo.logged.keys()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return tokens.log_probs", "returned Tensor, not a PolicyLoss"),
        ("return PolicyLoss(per_token=tokens.log_probs.sum())", "`per_token` has the shape (), but there are 6 tokens"),
        (
            "return PolicyLoss(per_token=tokens.log_probs, logged={'mean': tokens.log_probs.mean()})",
            "`mean` has the shape ()",
        ),
        ("return PolicyLoss(per_token=tokens.log_probs / 0)", "not finite"),
        ("return PolicyLoss(per_token=tokens.log_probs.detach())", "`per_token` has no gradient"),
        ("return PolicyLoss(per_token=tokens.log_probs.sub(9.0).sqrt())", "is missing or not finite"),
        ("return PolicyLoss(per_token=torch.ones(6, requires_grad=True))", "is missing or not finite"),
        ("return 1 / 0", "ZeroDivisionError: division by zero (file_of_mine.py line 4)"),
        ("return PolicyLoss(per_token=-tokens.advantages * tokens.log_probs)", ""),
    ],
)
def test_a_loss_is_tried_on_made_up_tokens(tmp_path, body, expected):
    found = loss_problem(CustomLoss(function=function(tmp_path, f"def mine(tokens):\n    {body}\n")))
    assert matches(found, expected)


@pytest.mark.parametrize(
    ("per_token", "expected"),
    [
        ("-tokens.advantages * tokens.log_ratio.exp()", []),
        ("tokens.advantages * tokens.log_ratio.exp()", ["advantage 1 likelier", "advantage -1 less likely"]),
        ("-tokens.advantages.abs() * tokens.log_probs", ["advantage -1 less likely"]),
        ("-tokens.advantages * (tokens.log_probs + tokens.log_probs.mean())", ["other responses"]),
    ],
)
def test_a_loss_that_breaks_a_law_is_a_problem_with_its_reason(tmp_path, per_token, expected):
    body = f"def mine(tokens):\n    return PolicyLoss(per_token={per_token})\n"
    found = loss_doubts(CustomLoss(function=function(tmp_path, body)))
    assert all_match(found, expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("[[r - sum(x.sum() for x in group) / len(group) / len(r) for r in group] for group in rewards]", []),
        ("rewards", ["equal rewards an advantage that is not 0"]),
        ("[[(r - group[0]) for r in group] for group in rewards]", ["when the order of the responses"]),
    ],
)
def test_an_estimator_that_breaks_a_law_is_a_problem_with_its_reason(tmp_path, body, expected):
    text = f"def mine(inputs):\n    rewards = inputs.token_rewards\n    return {body}\n"
    found = advantage_doubts(CustomAdvantage(function=function(tmp_path, text)))
    assert all_match(found, expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return [[0.5 * rewards for rewards in group] for group in inputs.token_rewards]", ""),
        ("return [[list(rewards) for rewards in group] for group in inputs.token_rewards]", ""),
        (
            "return [rewards for group in inputs.token_rewards for rewards in group]",
            "must return one array for each rollout",
        ),
        (
            "return [[rewards[:1] for rewards in group] for group in inputs.token_rewards]",
            "it returned [[1, 1, 1], [1, 1",
        ),
        ("return None", "it returned NoneType"),
        ("return [[rewards / 0 for rewards in group] for group in inputs.token_rewards]", "not a finite number"),
        ("raise KeyError('r')", "KeyError: 'r' (file_of_mine.py line 4)"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*encountered in divide")
def test_an_estimator_is_tried_on_made_up_groups(tmp_path, body, expected):
    found = advantage_problem(CustomAdvantage(function=function(tmp_path, f"def mine(inputs):\n    {body}\n")))
    assert matches(found, expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return scores['overall'].max() > 0.5", ""),
        ("return bool(scores['overall'].any())", ""),
        ("return scores['overall']", "returned ndarray, not True or False"),
        ("return scores['acuracy'].any()", "tried on a group with overall: "),
    ],
)
def test_a_filter_is_tried_on_scores(tmp_path, body, expected):
    custom = CustomFilter(function=function(tmp_path, f"def mine(scores):\n    {body}\n"))
    found = filter_problem(custom, {"overall": np.array([0.0, 1.0])})
    assert matches(found, expected)


def test_the_examples_pass_their_trials():
    loss = CustomLoss(function=f"{EXAMPLES / 'loss.py'}:truncated", kwargs={"limit": 1.5})
    estimator = CustomAdvantage(function=f"{EXAMPLES / 'advantage.py'}:above_median")
    assert (loss_problem(loss), loss_doubts(loss)) == (None, [])
    assert (advantage_problem(estimator), advantage_doubts(estimator)) == (None, [])
    keeps = CustomFilter(function=f"{EXAMPLES / 'filter.py'}:differs")
    assert filter_problem(keeps, {"overall": np.array([0.0, 1.0])}) is None
    assert keeps.keeps({"overall": np.array([0.0, 1.0])}) and not keeps.keeps({"overall": np.full(3, 0.1)})


def test_an_estimator_gives_numbers_of_64_bits(tmp_path):
    text = "def mine(inputs):\n    return [[list(rewards) for rewards in group] for group in inputs.token_rewards]\n"
    ((first, second),) = CustomAdvantage(function=function(tmp_path, text)).advantages(INPUTS)
    assert (first.tolist(), second.tolist(), first.dtype) == ([0.0, 1.0], [0.0], np.float64)


def test_the_config_says_how_many_rollouts_an_estimator_needs():
    assert CustomAdvantage(function="a.py:b").smallest_group == 2
    assert CustomAdvantage(function="a.py:b", min_group=1).smallest_group == 1
