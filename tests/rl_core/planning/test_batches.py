"""Batch arithmetic, and the problems when numbers do not fit."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rl_core.config.loading import load_config
from rl_core.loop.training_loop import epoch_span
from rl_core.planning.batches import WorkerShare, batch_plan, most_passes, row_problems
from rl_core.planning.epoch_spans import EpochSpans

ROOT = Path(__file__).parents[3]
QUICKSTART = ROOT / "configs" / "quickstart.yaml"
# The fixture only builds configurations and keeps nothing between examples.
laws = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def batch_sizes(rollout: int, optimizer: int) -> tuple[str, str]:
    return f"data.rollout_batch_size={rollout}", f"actor.global_batch_size={optimizer}"


def test_a_plan_reads_as_worked_out_by_hand(configure):
    plan = batch_plan(configure("rollout.n=4", "actor.ppo_epochs=3"), train_rows=100)
    assert (plan.samples_per_step, plan.samples_per_optimizer_step) == (64, 32)
    assert (plan.optimizer_steps_per_step, plan.steps_per_epoch, plan.rows_left_out_per_epoch) == (6, 6, 4)
    assert (plan.epochs, plan.total_steps, plan.total_optimizer_steps) == (2, 12, 72)
    assert plan.update_token_budget == 4 * 80


def test_small_draws_of_a_filter_make_the_steps_that_they_fill(configure):
    """Whole draws of an epoch, then whole steps of them, as EasyR1 counts."""
    for size, steps in ((None, 6), (7, 6), (30, 5), (51, 3)):
        config = configure(
            "algorithm.online_filtering={}", f"algorithm.online_filtering.mini_rollout_batch_size={size or 'null'}"
        )
        plan = batch_plan(config, train_rows=100)
        assert (plan.steps_per_epoch, plan.prompts_per_draw) == (steps, size or 16)
    config = configure("algorithm.online_filtering={mini_rollout_batch_size: 101}")
    (problem,) = row_problems(config, 100)
    assert problem.fatal and "whole draws of 101 of the 100 training rows give 0 prompts" in problem.what
    assert "set it to a divisor of 16, or leave it out" in problem.fix


def test_the_policy_rests_while_the_critic_warms_up(configure):
    gae = ("algorithm.advantage.type=gae", "critic={global_batch_size: 4, ppo_epochs: 2}", "trainer.critic_warmup=5")
    plan = batch_plan(configure(*gae), train_rows=100)
    assert (plan.total_steps, plan.total_optimizer_steps, plan.total_critic_steps) == (12, 8 * 2, 12 * 4 * 2)
    assert batch_plan(configure(), train_rows=100).total_critic_steps == 0


@pytest.mark.parametrize(
    ("n", "micro", "groups", "passes"), [(8, 4, 16, 16), (8, 8, 16, 6), (17, 4, 3, 6), (8, 1, 2, 16), (8, 8, 0, 0)]
)
def test_the_passes_of_a_learner_are_those_of_its_longest_groups(configure, n, micro, groups, passes):
    # As above: 8 responses and their prompt are 192 tokens, of which micro x 80 hold one (4) or three (8).
    config = configure(f"rollout.n={n}", f"actor.micro_batch_size_per_device_for_update={micro}")
    assert most_passes(config, batch_plan(config, train_rows=16), groups) == passes


@laws
@given(rows=st.integers(16, 400), epochs=st.integers(1, 5), max_steps=st.none() | st.integers(1, 60))
def test_the_plan_is_what_the_training_loop_does(configure, rows, epochs, max_steps):
    limit = "null" if max_steps is None else str(max_steps)
    config = configure(f"trainer.total_epochs={epochs}", f"trainer.max_steps={limit}")
    plan = batch_plan(config, rows)
    spans = [
        epoch_span(epoch, spans=EpochSpans(steps=plan.steps_per_epoch), config=config)
        for epoch in range(1, plan.epochs + 1)
    ]
    assert all(first <= last for first, last in spans)
    assert plan.total_steps == spans[-1][1]
    assert plan.epochs == epochs if max_steps is None else plan.total_steps == max_steps


@laws
@given(
    val_freq=st.integers(1, 12),
    save_freq=st.integers(1, 12),
    steps_per_epoch=st.integers(1, 8),
    max_steps=st.integers(1, 20),
    epoch_ends=st.booleans(),
)
def test_best_is_refused_exactly_when_no_step_is_both_validated_and_saved(
    configure, val_freq, save_freq, steps_per_epoch, max_steps, epoch_ends
):
    config = configure(
        "merge.checkpoint=best",
        "actor.optim.lr_warmup_steps=0",
        f"trainer.val_freq={val_freq}",
        f"trainer.save_freq={save_freq}",
        f"trainer.max_steps={max_steps}",
        f"trainer.save_on_epoch_end={epoch_ends}",
    )
    saved = {
        step
        for step in range(1, max_steps + 1)
        if step % save_freq == 0 or (epoch_ends and step % steps_per_epoch == 0) or step == max_steps
    }
    scored = any(step % val_freq == 0 for step in saved)
    problems = row_problems(config, train_rows=16 * steps_per_epoch)
    assert [problem.where for problem in problems] == ([] if scored else ["merge.checkpoint"])


@laws
@given(warmup=st.integers(0, 40))
def test_a_warm_up_as_long_as_the_run_is_a_warning(configure, warmup):
    assume(warmup != 24)
    problems = row_problems(configure(f"actor.optim.lr_warmup_steps={warmup}"), train_rows=96)
    assert [(problem.where, problem.fatal) for problem in problems] == (
        [("actor.optim.lr_warmup_steps", False)] if warmup > 24 else []
    )


@pytest.mark.parametrize(("devices", "prompts", "n", "step"), [(8, 512, 5, 128), (2, 512, 5, 128), (8, 64, 8, 16)])
def test_the_examples_of_the_documentation(devices, prompts, n, step):
    """The table of docs/batch_sizes.md; for its first two sizes these are EasyR1's numbers."""
    config = load_config(
        QUICKSTART,
        [
            f"data.rollout_batch_size={prompts}",
            f"rollout.n={n}",
            f"actor.global_batch_size={step}",
            f"cluster.devices={devices}",
        ],
    )
    share = WorkerShare.of(config)
    row = next(
        line
        for line in (ROOT / "docs" / "batch_sizes.md").read_text().splitlines()
        if line.startswith(f"| {devices} | {prompts} | {n} | {step} |")
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[4] == f"{prompts * n:,}"
    assert cells[5] == f"{share.prompts * n:,} responses"
    assert cells[6:8] == [f"{prompts // step}", f"{step * n:,}"]
    assert cells[8] == f"{share.groups} groups = {share.groups * n} responses"
