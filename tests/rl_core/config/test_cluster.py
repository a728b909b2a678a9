"""The section `cluster`: addresses that Ray takes, no secrets, a single worker by default."""

import pytest
from pydantic import ValidationError

from rl_core.config.cluster import ClusterConfig


@pytest.mark.parametrize("address", ["local", "auto", "10.0.0.7:6379", "ray://head.example:10001"])
def test_an_address_is_one_that_ray_takes(address):
    assert ClusterConfig(address=address).address == address


@pytest.mark.parametrize("address", ["lokal", "http://head:8265", "ray://"])
def test_another_address_is_refused(address):
    with pytest.raises(ValidationError, match="address"):
        ClusterConfig(address=address)


def test_a_secret_in_the_environment_of_the_workers_is_refused():
    with pytest.raises(ValidationError, match="looks like a secret") as refused:
        ClusterConfig(runtime_env={"env_vars": {"WANDB_API_KEY": "0123"}})
    assert "0123" not in f"{refused.value.errors(include_input=False)}"


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ({"devices": 8, "sequence_parallel_size": 2, "tensor_parallel_size": 4}, []),
        ({"devices": 4, "nodes": 2, "sequence_parallel_size": 4}, []),
        ({"devices": 2, "nodes": 2, "sequence_parallel_size": 4}, [("sequence_parallel_size", False)]),
        ({"devices": 6, "sequence_parallel_size": 4}, [("sequence_parallel_size", True)]),
        ({"sequence_parallel_size": 2}, [("sequence_parallel_size", True)]),
        ({"devices": 2, "nodes": 2, "tensor_parallel_size": 4}, [("tensor_parallel_size", True)]),
        ({"tensor_parallel_size": 2}, [("tensor_parallel_size", True)]),
    ],
)
def test_workers_of_a_machine_are_put_together(section, found):
    problems = ClusterConfig.model_validate(section).problems()
    assert [(problem.where, problem.fatal) for problem in problems] == found
