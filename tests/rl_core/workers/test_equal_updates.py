"""Equal updates give equal numbers to the bit: at the quickstart's size and at 200-token responses, with several
threads, on cores that are busy with other work."""

from collections.abc import Callable

import pytest
import torch

from rl_core.config.run import RunConfig
from rl_core.cpu_switches import CPU_MODEL
from rl_core.run_directory import RunDirectory
from rl_core.types import TrainGroup
from tests.rl_core.builders import groups_of
from tests.rl_core.small_run import prepare
from tests.rl_core.workers.trials import Trials, made_up_groups, quickstart, what_differs

VARIANTS = {
    "float32": [],
    "qwen2_vl": ["model.source.family=qwen2_vl"],
    "qwen3_vl": ["model.source.family=qwen3_vl"],
    "bfloat16": ["model.dtype=bfloat16"],
    "pure bfloat16": ["model.dtype=bfloat16", "actor.optim.strategy=adamw_bf16"],
    "adapters": ["model.lora={rank: 8}"],
    "frozen vision tower": ["model.freeze_vision_tower=true"],
    "recomputed activations": ["model.gradient_checkpointing=true"],
    "logits in chunks": ["model.log_prob_chunk_tokens=256"],
    "full KL and entropy": ["algorithm.kl={coef: 0.1, penalty: full}", "algorithm.entropy_coef=0.01"],
    "critic": ["critic={}", "algorithm.advantage.type=gae"],
}
IN_EVERY_TEST_RUN = ("qwen3_vl", "critic")
"""Of the variants; the others are slow tests."""

Opener = Callable[[RunConfig], tuple[Trials, list[TrainGroup]]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> Opener:
    """A worker on a run's initial model and data, which are the same for each model family, and groups for it."""
    runs: dict[str, RunDirectory] = {}

    def open_trials(config: RunConfig) -> tuple[Trials, list[TrainGroup]]:
        source = config.model.source
        assert source.type == "tiny"
        if source.family not in runs:
            runs[source.family] = prepare(config, tmp_path_factory.mktemp("runs") / source.family)
        return Trials(config, runs[source.family]), made_up_groups(config, runs[source.family])

    return open_trials


def _cases() -> list[object]:
    return [name if name in IN_EVERY_TEST_RUN else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]


@pytest.mark.parametrize("variant", _cases())
def test_equal_updates_are_equal_to_the_bit_on_a_busy_machine(variant, opened):
    trials, groups = opened(quickstart(*VARIANTS[variant]))
    assert what_differs(trials, groups, threads=8, repeats=4, steps=1) == set()


def test_updates_are_equal_without_the_code_for_a_cpu_too(opened, monkeypatch):
    monkeypatch.setenv(CPU_MODEL, "0")
    trials, groups = opened(quickstart(longest=40))
    assert what_differs(trials, groups, threads=8, repeats=4, steps=1) == set()


@pytest.mark.parametrize("variant", _cases())
def test_the_first_ratio_of_an_update_is_exactly_1_with_recomputed_log_probs(variant, opened):
    # Micro-batches of four longest sequences, so that groups are split and sorted, and passes of sixteen.
    config = quickstart(
        *VARIANTS[variant],
        "algorithm.old_log_probs=recompute",
        "actor.micro_batch_size_per_device_for_update=4",
        "actor.micro_batch_size_per_device_for_experience=16",
        longest=64,
    )
    trials, groups = opened(config)
    assert trials.gap_of_the_first_ratio(groups) == 0.0


@pytest.mark.parametrize(
    ("kind", "place"), [("float32", "optimizer"), ("pure bfloat16", "optimizer"), ("critic and KL", "all")]
)
def test_offloading_changes_no_number(kind, place, opened):
    kinds = VARIANTS | {"critic and KL": [*VARIANTS["critic"], "algorithm.kl={coef: 0.1, penalty: full}"]}
    (here, groups), (offloaded, _) = (
        opened(quickstart(*kinds[kind], *more)) for more in ((), (f"trainer.offload={place}",))
    )
    expected, found = (each.outcome(groups, steps=3) for each in (here, offloaded))
    if kind == "critic and KL":
        asked = groups_of(groups)[:2]
        expected["reference"], found["reference"] = (
            f"{each._worker.trainer.reference_log_probs(asked)}" for each in (here, offloaded)
        )
    assert {name for name in expected if expected[name] != found[name]} == set()


def test_the_trainer_runs_deterministic_algorithms_and_nothing_else_does(opened):
    (trials, groups), modes = opened(quickstart(*VARIANTS["critic"])), set()
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda *_: modes.add(torch.are_deterministic_algorithms_enabled())
    )
    try:
        trials.outcome(groups, steps=1)
    finally:
        hook.remove()
    assert modes == {True}
    assert not torch.are_deterministic_algorithms_enabled()
