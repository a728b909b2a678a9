"""How many runs a machine carries out at the same time, and the sentence about it."""

import pytest

from rl_core.config.loading import apply_override, validate_config
from rl_core.config.run import RunConfig
from rl_core.planning.gpu import Gpu
from rl_core.planning.places import Machine, Need
from rl_core.planning.side_by_side import at_once_words, need_of, needs_of
from tests.rl_core.tracking.runs import a_config

GPU = Gpu(memory_gib=80.0)


def config_with(*overrides: str) -> RunConfig:
    tree = a_config().model_dump(mode="json")
    for override in overrides:
        apply_override(tree, override)
    return validate_config(tree, "test")


@pytest.mark.parametrize(
    ("cluster", "gpu", "gpus", "cores"),
    [
        ("{threads: 2}", None, 0, 2),
        ("{threads: 2, devices: 3}", None, 0, 6),
        ("{threads: 2, device: cpu}", None, 0, 2),
        ("{}", GPU, 1, 0),
        ("{devices: 4, placement: split}", GPU, 4, 0),
    ],
)
def test_a_run_takes_a_gpu_or_the_threads_of_each_worker(cluster: str, gpu: Gpu | None, gpus: int, cores: int) -> None:
    need = need_of(config_with(f"cluster={cluster}"), gpu)
    assert (need.gpus, need.cores, need.joins_cluster) == (gpus, cores, False)
    assert need.memory_gib is not None and need.memory_gib > 0.5


def test_without_a_number_of_threads_a_run_takes_what_its_workers_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(1000, 1006)))  # whose siblings are not known
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [need.cores for need in needs_of([config_with(), config_with("cluster.devices=4")])] == [6, 4]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert need_of(config_with(), None).cores == 1


@pytest.mark.parametrize("cluster", ["{address: auto}", "{address: 'ray://head:10001'}", "{nodes: 2}"])
def test_a_run_that_joins_a_cluster_has_it_for_itself(cluster: str) -> None:
    assert need_of(config_with(f"cluster={cluster}"), None).joins_cluster


def test_the_memory_of_a_model_that_is_not_here_is_not_known() -> None:
    away = config_with("model.source={type: pretrained, path: nobody/never-seen}")
    assert need_of(away, None).memory_gib is None


@pytest.mark.parametrize(
    ("needs", "machine", "words"),
    [
        ([Need(cores=2, memory_gib=2.0)] * 5, (0, 4, 64.0), "2 at a time: 4 cores, 2 threads each"),
        ([Need(cores=1, memory_gib=2.0)] * 2, (0, 8, 64.0), "2 at a time: 8 cores, 1 thread each"),
        ([Need(cores=1, memory_gib=10.0)] * 5, (0, 8, 24.0), "2 at a time: 24.0 GiB of memory, about 10.0 each"),
        ([Need(gpus=2, memory_gib=10.0)] * 5, (8, 1, 64.0), "4 at a time: 8 GPUs, 2 each"),
        ([Need(gpus=2, memory_gib=30.0)] * 5, (8, 1, 64.0), "2 at a time: 64.0 GiB of memory, about 30.0 each"),
        (
            [Need(cores=8, memory_gib=2.0)] * 2,
            (0, 8, 64.0),
            "one after the other: a run takes all 8 cores (cluster.threads)",
        ),
        (
            [Need(cores=2, memory_gib=2.0)] * 2,
            (0, 3, 64.0),
            "one after the other: a run takes 2 of 3 cores (cluster.threads)",
        ),
        ([Need(gpus=1, memory_gib=2.0)] * 2, (1, 8, 64.0), "one after the other: a run takes the only GPU"),
        (
            [Need(gpus=1, memory_gib=40.0)] * 2,
            (4, 8, 64.0),
            "one after the other: a run takes about 40.0 of 64.0 GiB of memory",
        ),
        (
            [Need(gpus=3, memory_gib=2.0)] * 2,
            (2, 8, 64.0),
            "one after the other: a run asks for 3 GPU(s), and this process may use 2",
        ),
        (
            [Need(gpus=1, memory_gib=2.0), Need(gpus=2, memory_gib=2.0)],
            (2, 8, 64.0),
            "one after the other: no two fit together",
        ),
        ([Need(gpus=1, memory_gib=2.0), Need(gpus=2, memory_gib=2.0)], (3, 8, 64.0), "side by side as they fit"),
    ],
)
def test_it_is_said_how_many_run_at_a_time_and_why(
    needs: list[Need], machine: tuple[int, int, float], words: str
) -> None:
    gpus, cores, memory = machine
    there = Machine(gpus=tuple(map(str, range(gpus))), cores=cores, memory_gib=memory)
    assert at_once_words(needs, there) == words
