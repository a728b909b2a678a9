"""Problems with generators that several workers hold together (tensor parallelism)."""

from collections.abc import Iterator

from rl_core.config.cluster import ClusterConfig
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.sequence_rules import one_of_those_that_fit, why_heads_not_shared
from rl_core.problem import Problem

_KEY = "cluster.tensor_parallel_size"


def generator_problems(cluster: ClusterConfig) -> Iterator[Problem]:
    """Workers of a machine that cannot be put together."""
    size = cluster.tensor_parallel_size
    if cluster.devices % size:
        yield Problem(
            where=_KEY,
            what=f"the {cluster.devices} worker(s) of a machine cannot hold generators in groups of {size}",
            fix="choose a divisor of cluster.devices",
        )


def generator_part_problems(cluster: ClusterConfig, sizes: ModelSizes) -> Iterator[Problem]:
    """Layers that the workers of a generator cannot share equally."""
    why = _why_not_divided(sizes, cluster.tensor_parallel_size)
    if why is not None:
        yield Problem(where=_KEY, what=why, fix=one_of_those_that_fit(sizes, _why_not_divided))


def _why_not_divided(sizes: ModelSizes, size: int) -> str | None:
    """Why vLLM cannot divide the layers of a model by `size`, in words; None if it can."""
    if sizes.vision_heads % size:
        return f"{sizes.vision_heads} attention heads of the vision tower cannot be shared equally by {size} ranks"
    if sizes.intermediate_size % size:
        return f"feed-forward layers of width {sizes.intermediate_size} cannot be shared equally by {size} ranks"
    return why_heads_not_shared(sizes, size)
