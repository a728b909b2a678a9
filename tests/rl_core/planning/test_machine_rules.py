"""What several workers and the packages of a run need of this machine is named before anything starts."""

import importlib.util
from pathlib import Path

import pytest
import torch

from rl_core.config.loading import load_config
from rl_core.environment import usable_cores
from rl_core.planning.gpu import Gpu, find_gpu
from rl_core.planning.machine_rules import machine_problems, package_problems, unusable_gpu
from rl_core.planning.rules import value_problems
from rl_core.problem import Problem
from tests.processes import printed_by
from tests.rl_core.planning.gpu_driver import put_driver

SMALL = Path(__file__).parents[2] / "e2e" / "configs" / "small.yaml"
GPU = Gpu(memory_gib=80.0)
EVERYWHERE = ("tracking.tensorboard=true", "tracking.swanlab=true", "tracking.wandb={mode: offline}")


def problems(*overrides: str, gpu: Gpu | None = None) -> list[Problem]:
    config = load_config(SMALL, overrides)
    return [*machine_problems(config, gpu), *value_problems(config)]


def where(found: list[Problem], *, fatal: bool) -> list[str]:
    return [problem.where for problem in found if problem.fatal == fatal]


@pytest.mark.parametrize(
    ("override", "gpu"),
    [
        ("actor.global_batch_size=1", None),
        ("cluster={devices: 1, device: cpu}", None),
        ("cluster={devices: 2}", GPU),
        ("cluster={nodes: 2, devices: 1, address: auto}", None),
    ],
)
def test_workers_that_fit_have_no_problems(override, gpu):
    assert problems(override, gpu=gpu) == []


def test_several_machines_need_a_cluster_that_was_started_on_them():
    found = problems("cluster.nodes=2", gpu=GPU)
    assert where(found, fatal=True) == ["cluster.nodes"]
    assert "name it in cluster.address" in found[0].fix


def test_training_can_go_on_with_a_number_of_workers_that_there_can_be():
    assert problems("cluster={nodes: 2, devices: 2, address: auto, sequence_parallel_size: 2, min_workers: 2}") == []
    assert where(problems("cluster={nodes: 2, address: auto, min_workers: 4}"), fatal=True) == ["cluster.min_workers"]
    through = problems("cluster={nodes: 2, address: 'ray://head:10001', min_workers: 1}")
    assert where(through, fatal=True) == ["cluster.min_workers"]


def test_a_gpu_that_is_not_there_is_named_and_in_a_joined_cluster_nobody_knows():
    assert where(problems("cluster.device=cuda"), fatal=True) == ["cluster.device"]
    assert problems("cluster.device=cuda", gpu=GPU) == []
    assert problems("cluster={device: cuda, address: auto}") == []


def test_more_workers_than_cores_are_a_warning():
    many = usable_cores() + 1
    batches = (f"data.rollout_batch_size={many}", f"actor.global_batch_size={many}", f"data.train.size={4 * many}")
    assert where(problems(f"cluster.devices={many}", *batches), fatal=False) == ["cluster.devices"]
    assert problems(f"cluster.devices={many}", *batches, gpu=GPU) == []


def test_more_threads_than_cores_are_a_warning_where_workers_are_on_this_machine():
    many = usable_cores() + 1
    (found,) = problems(f"cluster.threads={many}")
    assert (found.where, found.fatal) == ("cluster.threads", False)
    assert f"{many} thread(s) share the {many - 1} core(s)" in found.what and f"set it to {many - 1} or" in found.fix
    assert problems("cluster.threads=1") == problems(f"cluster.threads={many}", gpu=GPU) == []
    assert problems(f"cluster={{address: auto, threads: {many}}}") == []


def test_workers_without_work_are_a_warning_for_each_batch():
    """Of a draw of group filtering, of an optimizer step of the policy, and of one of the critic."""
    batches = ("data.rollout_batch_size=4", "actor.global_batch_size=2", "critic={global_batch_size: 1}")
    critic = "algorithm.advantage.type=gae"
    filtering = "algorithm.online_filtering={type: bounds, filter_key: accuracy, mini_rollout_batch_size: 2}"
    found = problems("cluster.devices=3", *batches, critic, filtering, gpu=GPU)
    assert where(found, fatal=True) == []
    assert where(found, fatal=False) == [
        "data.rollout_batch_size",
        "actor.global_batch_size",
        "critic.global_batch_size",
    ]
    assert "2 prompt(s) at a time for 3 workers leave 1 of them without work" in found[0].what


@pytest.mark.parametrize("variables", ["{NCCL_IB_DISABLE: 1}", "[NCCL_DEBUG]"])
def test_variables_that_ray_would_refuse_are_found_before(variables):
    found = problems("cluster.devices=2", f"cluster.runtime_env={{env_vars: {variables}}}", gpu=GPU)
    assert where(found, fatal=True) == ["cluster.runtime_env"]


SPLIT = "cluster={devices: 2, placement: split}"


@pytest.mark.parametrize(
    ("overrides", "key", "fatal"),
    [
        (["cluster={devices: 2, placement: split, generating_devices: 2}"], "cluster.generating_devices", True),
        (["cluster={placement: split}"], "cluster.generating_devices", True),
        ([SPLIT, "rollout.staleness=0"], "rollout.staleness", False),
    ],
)
def test_workers_that_would_never_train_or_always_wait_are_named(overrides, key, fatal):
    assert where(problems("rollout.staleness=1", *overrides), fatal=fatal) == [key]


def test_an_installed_deepspeed_is_named(monkeypatch, tmp_path):
    (tmp_path / "deepspeed").mkdir()
    (tmp_path / "deepspeed" / "__init__.py").write_text("raise AssertionError('preflight must not import it')")
    monkeypatch.syspath_prepend(tmp_path)
    (problem,) = problems()
    assert "deepspeed is installed" in problem.what
    assert problem.fix.endswith("pip uninstall deepspeed")


def test_a_tracker_whose_library_is_missing_is_named(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else find_spec(name))
    (problem,) = problems(*EVERYWHERE)
    assert problem.where == "tracking.wandb"
    assert ".[trackers]" in problem.fix


def test_ray_is_needed_where_there_is_a_gpu(monkeypatch):
    """Even a single worker on a GPU is one of a Ray cluster."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (problem,) = package_problems(load_config(SMALL), GPU)
    assert problem.where == "cluster"
    assert problem.fix.endswith(" ray")


H100 = "81559, NVIDIA H100 80GB HBM3, Disabled"

ASK = """
import sys
from rl_core.planning.gpu import find_gpu
from rl_core.planning.machine_rules import unusable_gpu
print(unusable_gpu(find_gpu()))
assert "torch" not in sys.modules
"""

VERSIONS = """
from typing import Optional

__all__ = ['__version__', 'cuda']
__version__ = '2.13.0'
cuda: Optional[str] = {cuda!r}
"""
"""torch/version.py as the builds of torch have it."""


def problem_of_a_cuda_build(folder: Path, cuda: str, *, sees_a_gpu: bool) -> str:
    """The problem where the installed torch is built with CUDA: a package of that name which comes first."""
    package = folder / "torch"
    package.mkdir()
    package.joinpath("version.py").write_text(VERSIONS.format(cuda=cuda))
    package.joinpath("__init__.py").write_text(f"class cuda:\n    is_available = lambda: {sees_a_gpu}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        return printed_by(ASK).strip()


def test_a_build_for_the_cpu_beside_a_gpu_is_a_problem(tmp_path, monkeypatch):
    assert torch.version.cuda is None, "tests run with the builds for the CPU"
    put_driver(tmp_path, monkeypatch, H100)
    problem = unusable_gpu(find_gpu())
    assert problem is not None and problem.fatal
    assert (
        f"(NVIDIA H100 80GB HBM3), but the installed torch {torch.__version__} was built without CUDA" in problem.what
    )


def test_no_gpu_and_one_elsewhere_have_no_problem():
    assert unusable_gpu(None) is None
    assert unusable_gpu(Gpu(memory_gib=80.0, is_elsewhere=True)) is None


@pytest.mark.parametrize(
    ("driver", "cuda", "sees_a_gpu", "needed"),
    [
        ("580.65.06", "13.0", False, None),
        ("575.57.08", "13.0", False, "580"),
        ("550.54.15", "13.0", True, None),  # with NVIDIA's compatibility package
        ("470.256.02", "12.8", False, "525"),
    ],
)
def test_a_driver_that_is_too_old_for_the_build_is_a_problem_with_both_versions(
    tmp_path, monkeypatch, driver, cuda, sees_a_gpu, needed
):
    put_driver(tmp_path, monkeypatch, H100, version=driver)
    problem = problem_of_a_cuda_build(tmp_path, cuda, sees_a_gpu=sees_a_gpu)
    if needed is None:
        assert problem == "None"
    else:
        assert (
            f"its driver is {driver}" in problem and f"built with CUDA {cuda}, which needs driver {needed}" in problem
        )
        assert f"update the NVIDIA driver to {needed} or later" in problem
