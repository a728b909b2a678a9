"""Problems with the section `cluster`: what the config and this machine show before any worker is started."""

import importlib.util
from collections.abc import Iterator

from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.environment import usable_cores
from rl_core.planning.batches import prompts_a_draw
from rl_core.planning.gpu import Gpu
from rl_core.planning.sequence_rules import sequence_problems
from rl_core.planning.tensor_rules import generator_problems
from rl_core.problem import Problem


def cluster_problems(config: RunConfig, gpu: Gpu | None) -> list[Problem]:
    """Problems with the workers that the config asks for.

    Args:
        config: The resolved configuration.
        gpu: The GPU of this machine; None if it has none.
    """
    together = [
        *placement_problems(config),
        *sequence_problems(config.cluster),
        *generator_problems(config.cluster),
        *_fewest_problems(config.cluster),
        *_thread_problems(config.cluster, gpu),
    ]
    if config.cluster.is_alone:
        return together
    return [
        *_ray_problems(),
        *_environment_problems(config),
        *_machine_problems(config, gpu),
        *_idle_problems(config),
        *together,
    ]


def placement_problems(config: RunConfig) -> Iterator[Problem]:
    """Workers that only generate or only train, where one kind is missing or idle."""
    cluster = config.cluster
    if not cluster.is_split:
        return
    if cluster.generating_devices >= cluster.devices:
        yield Problem(
            where="cluster.generating_devices",
            what=f"{cluster.generating_devices} of the {cluster.devices} worker(s) of each machine would generate, and "
            "none would be left to train",
            fix="lower it, raise cluster.devices, or set cluster.placement to colocated",
        )
    if cluster.tensor_parallel_size > 1:
        yield Problem(
            where="cluster.tensor_parallel_size",
            what="with cluster.placement split each generating worker has a whole generator",
            fix="set it to 1, or cluster.placement to colocated",
        )
    if cluster.min_workers is not None:
        yield Problem(
            where="cluster.min_workers",
            what="with cluster.placement split every machine needs the workers that it was planned with",
            fix="leave this key out, or set cluster.placement to colocated",
        )
    if config.rollout.staleness == 0:
        yield Problem(
            where="rollout.staleness",
            what="with 0 and cluster.placement split, the workers that generate wait while the others train, and these "
            "wait for them",
            fix="set it to 1, so that both work at the same time, or cluster.placement to colocated",
            fatal=False,
        )


def _ray_problems() -> Iterator[Problem]:
    if importlib.util.find_spec("ray") is None:
        yield Problem(
            where="cluster",
            what="workers run in a Ray cluster, and the package ray is not installed",
            fix=".venv/bin/pip install -c constraints.txt ray",
        )


def _environment_problems(config: RunConfig) -> Iterator[Problem]:
    """Ray would refuse variables that are not text when the first worker starts."""
    variables = config.cluster.runtime_env.get("env_vars", {})
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        yield Problem(
            where="cluster.runtime_env",
            what="env_vars is a mapping of names to texts",
            fix="put the values into quotes, as in {env_vars: {NCCL_DEBUG: 'INFO', NCCL_IB_DISABLE: '1'}}",
        )


def _machine_problems(config: RunConfig, gpu: Gpu | None) -> Iterator[Problem]:
    """What a cluster on this machine cannot have. Of a cluster that is joined nothing is known here."""
    cluster = config.cluster
    if cluster.address != "local":
        return
    if cluster.nodes > 1:
        yield Problem(
            where="cluster.nodes",
            what=f"a local cluster has one machine, not {cluster.nodes}",
            fix="start a Ray cluster on the machines (docs/cluster.md), and name it in cluster.address",
        )
    if cluster.device == "cuda" and gpu is None:
        yield Problem(
            where="cluster.device",
            what="cuda, but this machine has no GPU that may be used",
            fix="set cluster.device to cpu, or look at nvidia-smi and CUDA_VISIBLE_DEVICES",
        )
    cores = usable_cores()
    if (cluster.device == "cpu" or gpu is None) and cluster.devices > cores:
        yield Problem(
            where="cluster.devices",
            what=f"{cluster.devices} workers share the {cores} core(s) that this process may use",
            fix=f"set it to {cores} or less, unless this is a trial",
            fatal=False,
        )


def _thread_problems(cluster: ClusterConfig, gpu: Gpu | None) -> Iterator[Problem]:
    """More threads than cores, which a person may want to repeat another machine's run."""
    if cluster.threads is None or cluster.address != "local" or (cluster.device != "cpu" and gpu is not None):
        return
    asked, cores = cluster.threads * cluster.devices, usable_cores()
    if asked > cores:
        yield Problem(
            where="cluster.threads",
            what=f"{asked} thread(s) share the {cores} core(s) that this process may use, which takes longer",
            fix=f"set it to {max(1, cores // cluster.devices)} or less, unless the run of a machine with more cores is "
            "to be repeated",
            fatal=False,
        )


def _fewest_problems(cluster: ClusterConfig) -> Iterator[Problem]:
    """A number of workers that training could never go on with."""
    fewest, together = cluster.min_workers, cluster.sequence_parallel_size
    if fewest is None:
        return
    if fewest > cluster.ranks:
        yield Problem(
            where="cluster.min_workers",
            what=f"{fewest} workers are more than the {cluster.ranks} of the run",
            fix=f"set it to {cluster.ranks} or less",
        )
    if cluster.address.startswith("ray://"):
        yield Problem(
            where="cluster.min_workers",
            what="through ray:// a run cannot see what is left on which machine",
            fix="start the run on a machine of the cluster, with cluster.address auto, or leave this key out",
        )
    if fewest % together:
        yield Problem(
            where="cluster.min_workers",
            what=f"{fewest} worker(s) cannot be put together in groups of {together}, so training goes on with "
            f"{fewest + together - fewest % together} at least",
            fix="set it to a multiple of cluster.sequence_parallel_size",
            fatal=False,
        )


def _idle_problems(config: RunConfig) -> Iterator[Problem]:
    """Batches with fewer prompts than workers: a prompt with its responses is computed by one of them."""
    learners, critic = config.cluster.trainers // config.cluster.sequence_parallel_size, config.critic
    batches = {
        "data.rollout_batch_size": prompts_a_draw(config),
        "actor.global_batch_size": config.actor.global_batch_size,
        **({} if critic is None else {"critic.global_batch_size": critic.global_batch_size}),
    }
    for where, prompts in batches.items():
        if prompts < learners:
            yield Problem(
                where=where,
                what=f"{prompts} prompt(s) at a time for {learners} workers leave {learners - prompts} of them without "
                "work",
                fix="raise it, or lower cluster.devices or cluster.nodes",
                fatal=False,
            )
