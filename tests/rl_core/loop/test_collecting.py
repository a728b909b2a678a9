"""Group filtering with the real engine: a reward that is constant for prompts with an even answer."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rl_core.algorithms.estimators import ReMax
from rl_core.algorithms.filters import BoundsFilter
from rl_core.config.run import RunConfig
from rl_core.data.loader import PromptLoader
from rl_core.loop.collecting import Collected, Collector, policy_versions
from rl_core.loop.draws import TooFewInformativeGroups
from rl_core.loop.rollout_batch import EMPTY, RolloutBatch
from rl_core.loop.step_recorder import StepRecord
from rl_core.rewards.pool import RewardPool
from rl_core.timing import PhaseTimer
from rl_core.workers.protocol import awake_generator
from tests.rl_core.small_run import PARITY, loader_of
from tests.rl_core.steps import changed, take_step

Sample = Callable[..., RolloutBatch]

SPREAD = BoundsFilter(statistic="spread", filter_low=0.0, filter_high=None, max_try_make_batch=3)


def odd(size: int | None, **more: object) -> BoundsFilter:
    """Passes every group of an odd answer, so that which are kept is known; in draws of `size` prompts."""
    bounds = {"filter_key": "odd", "filter_low": 0.5, "filter_high": None}
    return BoundsFilter.model_validate({**bounds, "mini_rollout_batch_size": size, **more})


KEEP = odd(None, surplus="keep")


def filtering(config: RunConfig, online_filtering: BoundsFilter | None) -> RunConfig:
    return changed(config, {"algorithm.online_filtering": online_filtering, "reward.function": PARITY})


def collector_of(
    worker, rewards: RewardPool, config: RunConfig, *, step: int, recorded: RolloutBatch = EMPTY, timer=None
) -> Collector:
    return Collector(
        step=step,
        config=config,
        workers=worker,
        rewards=rewards,
        timer=timer or PhaseTimer(),
        policy_version=worker.policy_version,
        recorded=recorded,
    )


@pytest.fixture
def loader(prepared_run, config) -> PromptLoader:
    return loader_of(prepared_run, config)


@pytest.fixture
def sample(worker, parity, config, prepared_run) -> Sample:
    def draw(
        online_filtering: BoundsFilter | None, *, n: int = config.rollout.n, recorded: RolloutBatch = EMPTY
    ) -> Collected:
        drawing = changed(filtering(config, online_filtering), {"rollout.n": n})
        collector = collector_of(worker, parity, drawing, step=1, recorded=recorded)
        with awake_generator(worker):
            return collector.collect(loader_of(prepared_run, drawing).next_batch)

    return draw


def test_prompts_are_drawn_until_the_batch_is_full_of_groups_with_a_signal(sample, config):
    batch = sample(SPREAD)
    assert len(batch.batch.groups) == config.data.rollout_batch_size
    assert all(int(group.prompt.answer) % 2 == 1 for group in batch.batch.groups)
    assert batch.metrics["filter/draws"] > 1.0
    informative = [
        g for g in batch.generated.groups if len({batch.generated.scores[r.key].overall for r in g.rollouts}) > 1
    ]
    assert batch.metrics["filter/kept_share"] == len(informative) / len(batch.generated.groups)
    assert list(batch.batch.groups) == informative[: len(batch.batch.groups)]
    uids = [group.prompt.uid for group in batch.generated.groups]
    assert len(set(uids)) == len(uids)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8])
def test_a_draw_has_the_given_prompts_and_ends_with_the_group_that_fills_the_batch(sample, config, size):
    """As many draws as it takes and no prompt more; the groups of a step are those of one draw after the other."""
    wanted = config.data.rollout_batch_size
    batch = sample(odd(size))
    passed = [group for group in batch.generated.groups if int(group.prompt.answer) % 2 == 1]
    assert list(batch.batch.groups) == passed and len(passed) == wanted
    assert batch.generated.groups[-1] is passed[-1]
    draws = -(-len(batch.generated.groups) // size)
    assert batch.metrics["filter/draws"] == draws
    earlier = batch.generated.groups[: (draws - 1) * size]
    assert sum(int(group.prompt.answer) % 2 for group in earlier) < wanted, "the draw before had not filled it"


def test_generation_ends_when_the_batch_is_full(sample, config, worker, monkeypatch):
    """The engine decodes few sequences at a time, so that most of the draw still waits in it by then. A fast reward
    scores up to 64 rollouts at once (rl_core/rewards/sample_queue.py)."""
    n, size = 16, config.data.rollout_batch_size
    everything = sample(odd(12, filter_low=-1.0, surplus="keep"), n=n)
    assert len(everything.generated.groups) == 12, "a surplus that is kept is generated"
    finished = []
    generate = worker.generate

    def counted(requests, sampling):
        for rollout in generate(requests, sampling):
            finished.append(rollout.key)
            yield rollout

    monkeypatch.setattr(worker, "generate", counted)
    few_at_a_time = config.rollout.model_copy(update={"max_num_seqs": 4})
    monkeypatch.setattr(worker.generator._engine, "_config", few_at_a_time)
    batch = sample(odd(12, filter_low=-1.0), n=n)
    assert len(batch.generated.groups) == len(batch.batch.groups) == size
    assert size * n <= len(finished) < 12 * n


def test_the_allowed_draws_are_counted_in_draws_of_that_size(sample):
    with pytest.raises(TooFewInformativeGroups, match=r"2 draws .* of 4 different prompts gave [0-3] of 4 groups"):
        sample(odd(2, max_try_make_batch=2, filter_low=2.0))


def test_a_kept_surplus_never_fills_the_next_batch_alone(sample, config):
    """Engine and trainer are compared on the groups of the step itself."""
    batch = sample(odd(12, surplus="keep"))
    assert len(batch.surplus.groups) <= config.data.rollout_batch_size - 1
    passed = sum(int(group.prompt.answer) % 2 for group in batch.generated.groups)
    assert len(batch.surplus.groups) == min(passed, 2 * config.data.rollout_batch_size - 1) - len(batch.batch.groups)


def test_an_unknown_component_is_named_with_those_there_are(sample):
    with pytest.raises(
        ValueError,
        match=r"filter_key is 'accuracy', but for a response to prompt \S+ the reward returned \['odd', 'overall'\]",
    ):
        sample(BoundsFilter(filter_key="accuracy"))


@pytest.fixture
def two_steps(worker, parity, config, loader) -> list[StepRecord]:
    """The second learns from what the first one kept, at a rate that moves the log-probs."""
    keeping, records, kept = filtering(config, KEEP), [], EMPTY
    for number in (1, 2):
        record = take_step(loader.next_batch, step=number, config=keeping, workers=worker, rewards=parity, kept=kept)
        records.append(record)
        kept = record.collected.surplus
    return records


def test_groups_above_the_batchs_size_are_learned_from_in_the_next_step(two_steps, config):
    first, second = two_steps
    size = config.data.rollout_batch_size
    learned = [{group.prompt.uid for group in record.learned.groups} for record in two_steps]
    waiting = {group.prompt.uid for group in first.collected.surplus.groups}
    assert waiting and not waiting & learned[0]
    assert {group.prompt.uid for group in second.collected.stale.groups} == waiting & learned[1] != set()
    assert [len(record.learned.groups) for record in two_steps] == [size, size]
    assert not {group.prompt.uid for group in second.collected.generated.groups} & {
        group.prompt.uid for group in second.collected.stale.groups
    }
    assert [first.metrics[f"filter/{name}_groups"] for name in ("kept", "stale", "dropped")] == [len(waiting), 0, 0]
    used = len(second.collected.stale.groups)
    assert second.metrics["filter/stale_groups"] == used
    assert second.metrics["filter/dropped_groups"] == len(waiting) - used


def test_a_kept_group_has_the_version_and_the_log_probs_of_the_engine_that_drew_it(two_steps, worker):
    first, second = two_steps
    drawn = {rollout.key: rollout for group in first.collected.generated.groups for rollout in group.rollouts}
    stale = [
        sample for group in second.learned.groups for sample in group.samples if sample.rollout.policy_version == 0
    ]
    assert len(stale) == sum(len(group.rollouts) for group in second.collected.stale.groups) > 0
    for sample in stale:
        assert np.array_equal(sample.old_log_probs, drawn[sample.rollout.key].log_probs)
    fresh = {s.rollout.policy_version for g in second.learned.groups for s in g.samples} - {0}
    assert fresh == {1} and worker.policy_version == 2


def test_a_kept_group_whose_prompt_comes_round_again_is_dropped(worker, parity, config, loader, two_steps):
    drawn = two_steps[0].collected.generated
    kept = RolloutBatch.of(drawn.groups[:1], drawn.scores)
    collector = collector_of(worker, parity, filtering(config, KEEP), step=3)
    again = kept.groups[0].prompt
    others = [prompt for prompt in loader.next_batch() if prompt.uid != again.uid]
    draws = iter([[again, *others]])
    with awake_generator(worker):
        batch = collector.collect(lambda: next(draws, None) or loader.next_batch(), kept=kept)
    assert batch.stale.groups == [] and batch.metrics["filter/dropped_groups"] == 1.0


def test_recorded_rollouts_are_taken_if_the_same_weights_sampled_them(worker, parity, config, loader):
    prompts = loader.next_batch()

    def collect(recorded, timer):
        plain = filtering(config, None)
        collector = collector_of(worker, parity, plain, step=1, recorded=recorded, timer=timer)
        with awake_generator(worker):
            return collector.collect(lambda: prompts).generated

    first = collect(EMPTY, PhaseTimer())
    taken, of_others, without_one = PhaseTimer(), PhaseTimer(), PhaseTimer()
    again = collect(RolloutBatch.of(first.groups, first.scores), taken)
    assert again == first and "generate" not in taken.seconds
    assert list(again.scores) == list(first.scores) != list(RolloutBatch.of(first.groups, first.scores).scores)
    sampled_by_others = [
        replace(group, rollouts=[replace(rollout, policy_version=99) for rollout in group.rollouts])
        for group in first.groups
    ]
    fresh = collect(RolloutBatch.of(sampled_by_others, first.scores), of_others)
    assert "generate" in of_others.seconds and policy_versions(fresh.groups) == {worker.policy_version}
    collect(RolloutBatch.of(first.groups[1:], first.scores), without_one)
    assert "generate" in without_one.seconds


def test_the_greedy_response_is_judged_as_the_others_and_is_the_same_each_time(worker, parity, config, loader):
    remax = changed(filtering(config, None), {"algorithm.advantage": ReMax()})
    prompts = loader.next_batch()
    with awake_generator(worker):
        batches = [collector_of(worker, parity, remax, step=step).collect(lambda: prompts) for step in (1, 2)]
    assert batches[0].greedy_rewards.keys() == {prompt.uid for prompt in prompts}
    assert batches[0].greedy_rewards == batches[1].greedy_rewards
    assert batches[0].generated.scores != batches[1].generated.scores
    constant = {p.uid: 0.5 for p in prompts if int(p.answer) % 2 == 0}
    assert {uid: reward for uid, reward in batches[0].greedy_rewards.items() if uid in constant} == constant
