"""What the update learns from, made by the real worker from real rollouts with scores made up."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_core.algorithms.estimators import RLOO
from rl_core.config.algorithm import AlgorithmConfig, KLConfig, MaskedCorrection, TruncatedCorrection
from rl_core.config.run import RunConfig
from rl_core.config.training import CriticConfig
from rl_core.loop.experience import Experience, build_experience
from rl_core.timing import PhaseTimer
from rl_core.training.batches import split_by_optimizer_step
from rl_core.types import Group, RolloutKey, Score
from tests.rl_core.builders import groups_of
from tests.rl_core.steps import changed, collected_of

Scored = tuple[list[Group], dict[RolloutKey, Score]]


@pytest.fixture(scope="session")
def scored(train_groups) -> Scored:
    groups = groups_of(train_groups)
    generator = np.random.default_rng(3)
    keys = [rollout.key for group in groups for rollout in group.rollouts]
    return groups, {key: Score(components={"overall": float(generator.integers(0, 2))}) for key in keys}


@pytest.fixture
def use(worker, monkeypatch, prepared_run):
    """`use(**options)`: let the worker train by another algorithm section, with a reference that is not the policy."""

    def change(**options: object) -> RunConfig:
        config = worker.trainer.config.model_copy(
            update={"algorithm": AlgorithmConfig(**options), "critic": CriticConfig()}
        )
        monkeypatch.setattr(worker.trainer, "config", config)
        monkeypatch.setattr(worker.trainer, "critic", None)
        worker.load("reference", prepared_run.initial_model)
        with torch.no_grad():
            for weight in worker.trainer.policy.model.parameters():
                weight.mul_(1.05)
        return config

    return change


def build(worker, scored: Scored, config: RunConfig) -> Experience:
    kl = config.algorithm.kl
    coef = None if kl is None else kl.coef
    return build_experience(collected_of(*scored), config=config, kl_coef=coef, workers=worker, timer=PhaseTimer())


def advantages(experience: Experience) -> list[np.ndarray]:
    return [sample.advantages for group in experience.groups for sample in group.samples]


def test_recomputed_log_probs_are_the_trainers(worker, scored, use):
    groups, _ = scored
    config = use(old_log_probs="recompute")
    experience = build(worker, scored, config)
    prompts = [group.prompt for group in groups]
    batches = split_by_optimizer_step(groups, prompts, global_batch_size=config.actor.global_batch_size)
    expected = [log_probs for batch in worker.compute("old_log_probs", batches) for log_probs in batch]
    for group, log_probs in zip(experience.groups, expected, strict=True):
        assert all(np.array_equal(s.old_log_probs, mine) for s, mine in zip(group.samples, log_probs, strict=True))
    assert experience.metrics["off_policy/kl"] > 0.0
    assert experience.groups[0].samples[0].importance_weights is None


def test_the_engines_log_probs_cost_no_pass_and_have_no_mismatch(worker, scored, use):
    experience = build(worker, scored, use())
    sample = experience.groups[0].samples[0]
    assert sample.old_log_probs is sample.rollout.log_probs
    assert experience.metrics == {}


def shifted(scored: Scored, first: float) -> Scored:
    """The first rollout's first token as an engine would report it that thinks it likelier by `first` nats."""
    groups, scores = scored
    rollout = groups[0].rollouts[0]
    log_probs = rollout.log_probs.copy()
    log_probs[0] += first
    changed = replace(groups[0], rollouts=[replace(rollout, log_probs=log_probs), *groups[0].rollouts[1:]])
    return [changed, *groups[1:]], scores


@pytest.mark.parametrize(
    ("correction", "shift", "weight"),
    [
        (TruncatedCorrection(type="tis", clip_max=2.0), 1.0, np.exp(-1.0)),
        (TruncatedCorrection(type="tis", clip_max=2.0), -1.0, 2.0),
        (MaskedCorrection(type="mis"), 1.0, 0.0),
        (MaskedCorrection(type="mis"), -1.0, np.exp(1.0)),
        (TruncatedCorrection(type="tis", level="sequence"), 1.0, np.exp(-1.0)),
        (MaskedCorrection(type="mis", level="sequence"), 1.0, 0.0),
    ],
)
def test_a_token_that_the_engine_sees_otherwise_is_weighed(correction, shift, weight, worker, scored, use):
    config = use(old_log_probs="recompute", correction=correction)
    on_policy = [
        [replace(r, log_probs=mine) for r, mine in zip(g.rollouts, log_probs, strict=True)]
        for g, log_probs in zip(scored[0], worker.compute("old_log_probs", [scored[0]])[0], strict=True)
    ]
    agreeing = [replace(group, rollouts=rollouts) for group, rollouts in zip(scored[0], on_policy, strict=True)]
    experience = build(worker, shifted((agreeing, scored[1]), shift), config)
    first, *others = [s.importance_weights for group in experience.groups for s in group.samples]
    assert first[0] == pytest.approx(weight, rel=1e-4)
    assert all(np.allclose(weights, 1.0, atol=1e-4) for weights in others)
    assert first[-1] == pytest.approx(weight if correction.level == "sequence" or len(first) == 1 else 1.0, abs=1e-4)
    assert 0.0 < experience.metrics["off_policy/ess"] < 1.0


def test_kl_in_the_reward_lowers_the_advantage_of_what_strayed(worker, scored, use):
    plain = build(worker, scored, use(advantage=RLOO()))
    penalised = build(worker, scored, use(advantage=RLOO(), kl=KLConfig(coef=0.5, penalty="kl", use_kl_loss=False)))
    groups, _ = scored
    ref = worker.compute("reference_log_probs", [groups])[0]
    kl = [
        [float((r.log_probs - theirs).sum()) for r, theirs in zip(g.rollouts, log_probs, strict=True)]
        for g, log_probs in zip(groups, ref, strict=True)
    ]
    others = [[(sum(group) - mine) / (len(group) - 1) for mine in group] for group in kl]
    change = [0.5 * (o - m) for group, rest in zip(kl, others, strict=True) for m, o in zip(group, rest, strict=True)]
    differences = [float((b - a)[0]) for a, b in zip(advantages(plain), advantages(penalised), strict=True)]
    assert differences == pytest.approx(change, abs=1e-5)
    assert penalised.mean_kl == penalised.metrics["kl/reference"]


def test_the_full_kl_is_measured_and_never_negative(worker, scored, use):
    groups, _ = scored
    config = use(kl=KLConfig(coef=0.1))
    full = np.concatenate([values for group in worker.compute("full_kl", [groups])[0] for values in group])
    assert (full >= 0.0).all() and full.max() > 0.0
    experience = build(worker, scored, changed(config, {"algorithm.kl": KLConfig(coef=1.0, penalty="full")}))
    assert experience.mean_kl > 0.0
    assert experience.groups[0].samples[0].ref_log_probs is None


def test_overlong_filtering_leaves_cut_responses_out_of_the_loss_and_nothing_else(worker, scored, use):
    groups, scores = scored
    cut = groups[0].rollouts[0].key
    ended = [
        replace(g, rollouts=[replace(r, finish_reason="length" if r.key == cut else "stop") for r in g.rollouts])
        for g in groups
    ]
    plain = build(worker, (ended, scores), use())
    filtered = build(worker, (ended, scores), use(overlong_filtering=True))
    assert all(sample.in_loss for group in plain.groups for sample in group.samples)
    assert [s.rollout.key for group in filtered.groups for s in group.samples if not s.in_loss] == [cut]
    assert all(np.array_equal(*pair) for pair in zip(advantages(plain), advantages(filtered), strict=True))
