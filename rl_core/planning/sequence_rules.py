"""Problems with sequence parallelism."""

from collections.abc import Callable, Iterator

from rl_core.config.cluster import ClusterConfig
from rl_core.planning.model_sizes import ModelSizes
from rl_core.problem import Problem

_KEY = "cluster.sequence_parallel_size"


def why_not_shared(heads: int, key_value_heads: int, size: int) -> str | None:
    """Why the heads of a model cannot be shared by `size` ranks, in words; None if they can."""
    if heads % size:
        return f"{heads} attention heads cannot be shared equally by {size} ranks"
    if key_value_heads % size and size % key_value_heads:
        return f"neither of {key_value_heads} key/value heads and {size} ranks is a multiple of the other"
    return None


def why_heads_not_shared(sizes: ModelSizes, size: int) -> str | None:
    """As `why_not_shared`, of a model with these sizes."""
    return why_not_shared(sizes.heads, sizes.key_value_heads, size)


def one_of_those_that_fit(sizes: ModelSizes, why_not: Callable[[ModelSizes, int], str | None]) -> str:
    """What to do about a number of ranks that cannot share a model; `why_not` says of a number why they cannot."""
    fitting = [size for size in range(1, sizes.heads + 1) if why_not(sizes, size) is None]
    return f"set it to one of {', '.join(map(str, fitting))}"


def head_problems(cluster: ClusterConfig, sizes: ModelSizes) -> Iterator[Problem]:
    """Attention heads that the workers of a sequence cannot share equally."""
    why = why_heads_not_shared(sizes, cluster.sequence_parallel_size)
    if why is not None:
        yield Problem(where=_KEY, what=why, fix=one_of_those_that_fit(sizes, why_heads_not_shared))


def sequence_problems(cluster: ClusterConfig) -> Iterator[Problem]:
    """Workers that cannot be put together, or only over the network."""
    size = cluster.sequence_parallel_size
    if cluster.trainers % size:
        yield Problem(
            where=_KEY,
            what=f"{cluster.trainers} worker(s) cannot be put together in groups of {size}",
            fix="choose a divisor of the number of workers that train",
        )
    elif cluster.training_devices % size:
        yield Problem(
            where=_KEY,
            what=f"groups of {size} workers on machines of {cluster.training_devices} are spread over machines, and "
            "every layer sends all of its states over the network, twice",
            fix="choose a divisor of cluster.devices",
            fatal=False,
        )
