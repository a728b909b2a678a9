"""Two steps of a real training with a loss, an estimator and a filter of the user's, in files outside the package."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_core.config.algorithm import AlgorithmConfig
from rl_core.loop.step_recorder import StepRecord
from rl_core.rewards.pool import RewardPool
from tests.rl_core.steps import take_step

EXAMPLES = Path(__file__).parents[3] / "configs" / "extensions"

pytestmark = pytest.mark.usefixtures("own_imports")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The examples, copied out of the repository."""
    return shutil.copytree(EXAMPLES, tmp_path / "mine")


@pytest.fixture
def two_steps(worker, prompts, config, monkeypatch):
    """`two_steps(algorithm)`: train by this section and give both records."""

    def train(algorithm: dict) -> list[StepRecord]:
        section = AlgorithmConfig.model_validate(algorithm)
        reward = config.reward.model_copy(update={"function": f"{Path(__file__).with_name('parity_reward.py')}:judge"})
        settings = config.model_copy(update={"algorithm": section, "reward": reward})
        monkeypatch.setattr(worker.trainer, "config", settings)
        with RewardPool(reward) as pool:
            return [take_step(prompts, step=step, config=settings, workers=worker, rewards=pool) for step in (1, 2)]

    return train


def weights_of(worker) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in worker.trainer.policy.parameters()])


def test_a_loss_of_ones_own_trains(files, two_steps, worker) -> None:
    before = weights_of(worker)
    loss = {"type": "custom", "function": f"{files / 'loss.py'}:truncated", "kwargs": {"limit": 1.5}}
    records = two_steps({"loss": loss})
    assert not torch.equal(before, weights_of(worker))
    assert all(0.0 <= record.metrics["actor/truncated_share"] < 1.0 for record in records)
    assert all(record.metrics["actor/grad_norm"] > 0.0 for record in records)


def test_an_estimator_of_ones_own_trains(files, two_steps, worker) -> None:
    before = weights_of(worker)
    advantage = {"type": "custom", "function": f"{files / 'advantage.py'}:above_median", "kwargs": {"scale": 2.0}}
    for record in two_steps({"advantage": advantage}):
        for group in record.learned.groups:
            overall = np.array(
                [record.collected.generated.scores[sample.rollout.key].overall for sample in group.samples]
            )
            expected = 2.0 * (overall - np.median(overall))
            for sample, advantage_of_it in zip(group.samples, expected, strict=True):
                assert sample.advantages == pytest.approx(np.full(len(sample.advantages), advantage_of_it), abs=1e-6)
    assert not torch.equal(before, weights_of(worker))


def test_a_filter_of_ones_own_chooses_the_groups(files, two_steps) -> None:
    (files / "sizes.py").write_text("def of_size(scores, *, sizes):\n    return len(scores['overall']) in sizes\n")
    keep = {"type": "custom", "function": f"{files / 'sizes.py'}:of_size", "kwargs": {"sizes": [4]}}
    for record in two_steps({"online_filtering": keep}):
        assert record.metrics["filter/kept_share"] == 1.0
    none = {**keep, "kwargs": {"sizes": [3]}, "max_try_make_batch": 2}
    with pytest.raises(RuntimeError, match=r"2 draws .* groups that .*sizes\.py:of_size keeps; widen the filter"):
        two_steps({"online_filtering": none})
