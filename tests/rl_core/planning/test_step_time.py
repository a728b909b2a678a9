"""The forecast of step time: its laws, and that it gives back what was measured."""

from collections.abc import Callable
from dataclasses import asdict, astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.planning.device_rates import DeviceRates
from rl_core.planning.measured_rates import MeasuredStep, apart, measured_rates, slowness
from rl_core.planning.step_time import Arrangement, StepTime, decode_steps, generate_seconds, step_time
from rl_core.planning.step_work import Lengths, StepWork, Updates

seconds = st.floats(1e-6, 10.0)
rates_drawn = st.builds(
    DeviceRates,
    decode_fixed=seconds,
    decode_sequence=seconds,
    prefill_token=seconds,
    update_fixed=seconds,
    update_token=seconds,
    forward_token=seconds,
    exchange=seconds,
    sync_within=seconds,
    sync_between=seconds,
    other=seconds,
)
lengths_drawn = st.builds(
    lambda prompt, response, more: Lengths(prompt=prompt, response=response, longest=response + more),
    prompt=st.floats(1, 2000),
    response=st.floats(1, 2000),
    more=st.floats(0, 2000),
)
work_drawn = st.builds(
    StepWork,
    prompts=st.integers(1, 256),
    n=st.integers(1, 16),
    lengths=lengths_drawn,
    updates=st.lists(
        st.builds(Updates, steps=st.integers(1, 8), groups=st.integers(1, 64)), min_size=1, max_size=2
    ).map(tuple),
    forwards=st.integers(0, 3),
)
in_flight_drawn = st.integers(1, 1024)

RATES = DeviceRates(
    decode_fixed=0.02,
    decode_sequence=0.0002,
    prefill_token=0.00002,
    update_fixed=0.01,
    update_token=0.00004,
    forward_token=0.00001,
    exchange=0.015,
    sync_within=0.02,
    sync_between=0.04,
    other=0.05,
)
WORK = StepWork(
    prompts=64,
    n=8,
    lengths=Lengths(prompt=40, response=9, longest=12),
    updates=(Updates(steps=4, groups=16),),
    forwards=1,
)


def slower(rates: DeviceRates, factor: float) -> DeviceRates:
    """The rates of a device on which everything takes `factor` times as long."""
    return DeviceRates(**{**{name: factor * value for name, value in asdict(rates).items()}, "beside": rates.beside})


def arrangement(generators: int, learners: int, **more: bool) -> Arrangement:
    """Workers that each have all weights."""
    return Arrangement(generators=generators, learners=learners, replicas=learners, in_flight=512, **more)


ALONE = arrangement(1, 1, is_split=True)
TOGETHER = arrangement(2, 2)
AHEAD = arrangement(1, 1, is_split=True, is_overlapped=True)


@given(work=work_drawn, rates=rates_drawn, generators=st.integers(1, 64), in_flight=in_flight_drawn)
def test_another_generator_never_slows_generation(
    work: StepWork, rates: DeviceRates, generators: int, in_flight: int
) -> None:
    fewer, more = (
        generate_seconds(work, rates, Arrangement(generators=number, learners=1, in_flight=in_flight))
        for number in (generators, generators + 1)
    )
    assert more <= fewer


@given(work=work_drawn, rates=rates_drawn, generators=st.integers(1, 16), learners=st.integers(1, 16))
def test_one_step_off_costs_no_more_than_a_split_in_turn_but_for_the_comparison(
    work: StepWork, rates: DeviceRates, generators: int, learners: int
) -> None:
    in_turn = step_time(work, rates, arrangement(generators, learners, is_split=True))
    ahead = step_time(work, rates, arrangement(generators, learners, is_split=True, is_overlapped=True))
    assert ahead.step <= (in_turn.step + ahead.compare) * (1 + 1e-9)
    assert in_turn.compare == 0.0


@given(work=work_drawn, rates=rates_drawn, generators=st.integers(1, 16), is_overlapped=st.booleans())
def test_twice_the_seconds_of_everything_are_twice_the_step(
    work: StepWork, rates: DeviceRates, generators: int, is_overlapped: bool
) -> None:
    placed = arrangement(generators, 2, is_split=is_overlapped, is_overlapped=is_overlapped)
    once, twice = (step_time(work, each, placed).step for each in (rates, slower(rates, 2.0)))
    assert twice == pytest.approx(2 * once)


@given(work=work_drawn, in_flight=in_flight_drawn)
def test_the_longest_response_bounds_the_decode_steps(work: StepWork, in_flight: int) -> None:
    """And so does the number of tokens, of which a decode step makes one for each sequence in flight."""
    sequences = work.prompts * work.n
    steps = decode_steps(work, sequences, in_flight)
    assert steps >= work.lengths.longest
    assert steps >= sequences * work.lengths.response / in_flight * (1 - 1e-9)
    assert decode_steps(work, sequences, sequences) == work.lengths.longest


def test_a_step_is_the_sum_of_its_parts() -> None:
    in_turn = StepTime(generate=3.0, update=2.0, sync=0.5, compare=0.0, other=0.25, is_overlapped=False)
    assert in_turn.step == 5.75
    assert replace(in_turn, compare=0.5, is_overlapped=True).step == 4.25


def test_the_seconds_of_a_step_by_hand() -> None:
    found = step_time(WORK, RATES, arrangement(2, 1))
    assert found.generate == pytest.approx(0.00002 * 32 * 40 + 0.02 * 12 + 0.0002 * 256 * 9)
    tokens = 64 * (40 + 8 * 9)
    assert found.update == pytest.approx(4 * 0.01 + 0.00004 * tokens + 0.00001 * tokens)
    assert (found.sync, found.compare, found.other) == (0.02, 0.0, 0.05)


@pytest.mark.parametrize(("sharding", "replicas"), [("full", 1), ("hybrid", 2), ("none", 8)])
def test_replicas_of_the_weights_are_counted(sharding: str, replicas: int) -> None:
    cluster = ClusterConfig.model_validate({"nodes": 2, "devices": 4, "sharding": sharding})
    assert Arrangement.of(cluster, in_flight=1, staleness=0).replicas == replicas


def test_gradients_are_exchanged_by_those_that_each_have_all_weights() -> None:
    """Two send them once to have their sum, four one and a half times, in each of four optimizer steps."""
    one, two, four = (step_time(WORK, RATES, arrangement(1, learners)) for learners in (1, 2, 4))
    assert [time.exchange for time in (one, two, four)] == pytest.approx([0.0, 4 * 0.015, 4 * 0.015 * 1.5])
    spread = step_time(WORK, RATES, replace(arrangement(1, 2), replicas=1))
    assert (spread.exchange, spread.update) == (0.0, pytest.approx(two.update - two.exchange))


def test_workers_that_share_cores_are_slower() -> None:
    """By some seconds where there are several, and by a factor where some generate while others train."""
    shared = replace(RATES, apart_generate=0.1, apart_update=0.2, beside=1.25)
    in_the_run = arrangement(1, 1)
    assert step_time(WORK, shared, in_the_run) == step_time(WORK, RATES, in_the_run)
    for placed, factor in ((ALONE, 1.0), (TOGETHER, 1.0), (AHEAD, 1.25)):
        free, found = step_time(WORK, RATES, placed), step_time(WORK, shared, placed)
        assert found.generate == pytest.approx(factor * (free.generate + 0.1))
        assert found.update - found.exchange == pytest.approx(factor * (free.update - free.exchange + 0.2))
        assert found.exchange == free.exchange, "all that exchange do so at the same time, whatever the rates are"
        assert found.compare == free.compare, "the two take turns"


def measured(work: StepWork, rates: DeviceRates, placed: Arrangement) -> MeasuredStep:
    """A step as devices with these rates make it, whose exchange was timed for the policy."""
    time = step_time(work, rates, placed)
    return MeasuredStep(
        work=work,
        arrangement=placed,
        generate=time.generate,
        update=time.update,
        exchange=time.exchange * work.updates[0].steps / work.optimizer_steps,
        sync=time.sync,
        compare=time.compare,
        total=time.step,
    )


@given(work=work_drawn, rates=rates_drawn, workers=st.integers(1, 8))
def test_measured_rates_give_back_the_measured_step(work: StepWork, rates: DeviceRates, workers: int) -> None:
    placed = arrangement(workers, workers)
    step = measured(work, rates, placed)
    found = step_time(work, measured_rates([step]), placed)
    assert found.generate == pytest.approx(step.generate)
    assert found.update == pytest.approx(step.update)
    assert found.step == pytest.approx(step.total)


def test_steps_one_step_off_are_given_back_with_their_comparison() -> None:
    shape = slower(RATES, 3.0)
    found = measured_rates([measured(WORK, RATES, AHEAD)], shape)
    assert found.other == pytest.approx(RATES.other)
    assert step_time(WORK, found, AHEAD).step == pytest.approx(step_time(WORK, RATES, AHEAD).step)


def test_two_numbers_of_workers_tell_what_does_not_grow_with_the_work() -> None:
    """The parts of which a step of the generator, and one of the trainer, consist; then another number of workers is
    foretold exactly."""
    shape = replace(RATES, decode_fixed=0.01, update_fixed=0.02)
    steps = [measured(WORK, RATES, arrangement(workers, workers)) for workers in (1, 4)]
    found = measured_rates(steps, shape)
    assert astuple(found) == pytest.approx(astuple(replace(RATES, sync_between=found.sync_between)))
    assert step_time(WORK, found, arrangement(2, 2)).step == pytest.approx(
        step_time(WORK, RATES, arrangement(2, 2)).step
    )


SHARED = replace(RATES, apart_generate=0.1, apart_update=0.2, beside=1.25)
HALF = replace(WORK, prompts=32, updates=(Updates(steps=4, groups=8),))
"""Half the work, which tells what does not grow with it."""


def test_what_workers_cost_each_other_is_measured() -> None:
    """A disturbed step does not change it."""
    together, ahead = ([measured(HALF, SHARED, placed)] * 3 for placed in (TOGETHER, AHEAD))
    together[0] = replace(together[0], generate=9.0)
    ahead[0] = replace(ahead[0], generate=9.0)
    found = apart(together, RATES)
    assert (found.apart_generate, found.apart_update) == (pytest.approx(0.1), pytest.approx(0.2))
    assert slowness(ahead, found) == pytest.approx(1.25)
    fast = replace(together[1], generate=0.01, update=0.01, exchange=0.0)
    assert apart([fast], RATES) == RATES and slowness([fast], RATES) == 1.0


def test_from_half_the_batch_the_whole_one_is_foretold() -> None:
    """As the benchmark does: one worker in the run's process with both, several with half of it."""
    shape = replace(slower(RATES, 2.0), exchange=0.0)
    alone = measured_rates([measured(work, RATES, arrangement(1, 1)) for work in (WORK, HALF)], shape)
    together, ahead = (measured(HALF, SHARED, placed) for placed in (TOGETHER, AHEAD))
    several = replace(
        apart([together], alone),
        exchange=measured_rates([together]).exchange,
        sync_within=together.sync,
        sync_between=ahead.sync,
    )
    rates = replace(several, beside=slowness([ahead], several))
    for placed in (TOGETHER, ALONE, AHEAD):
        assert step_time(WORK, rates, placed).step == pytest.approx(step_time(WORK, SHARED, placed).step)


def test_no_part_is_negative_however_the_seconds_are() -> None:
    slow = measured(WORK, RATES, arrangement(1, 1))
    for seconds_of_four in (10 * slow.generate, 0.01 * slow.generate):
        other = replace(
            slow, arrangement=arrangement(4, 4), generate=seconds_of_four, update=seconds_of_four, total=99.0
        )
        assert min(astuple(measured_rates([slow, other]))) >= 0.0


@pytest.fixture
def config(configure: Callable[..., RunConfig]) -> RunConfig:
    return configure("rollout.n=4")


def test_the_work_follows_from_the_config(config: RunConfig, configure: Callable[..., RunConfig]) -> None:
    work = StepWork.of(config, Lengths.assumed(config))
    assert (work.prompts, work.n, work.forwards) == (16, 4, 0)
    assert work.lengths == Lengths(prompt=32.0, response=8.0, longest=16.0)
    assert work.updates == (Updates(steps=2, groups=8),) and work.group_tokens == 32 + 4 * 8
    recomputed = configure("algorithm.kl={coef: 0.01}", "algorithm.old_log_probs=recompute", "actor.ppo_epochs=2")
    work = StepWork.of(recomputed, Lengths.assumed(recomputed))
    assert work.forwards == 2 and work.optimizer_steps == 4
