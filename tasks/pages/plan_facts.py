"""What a run computes, in words: batches, number formats, settings. For `sightline plan` and for the flow's page."""

from dataclasses import dataclass

from rl_core.config.cluster import ClusterConfig
from rl_core.config.model import ModelConfig
from rl_core.config.run import RunConfig
from rl_core.config.training import OptimConfig, RolloutConfig
from rl_core.environment import asked_threads, threads_of_a_worker
from rl_core.planning.batches import BatchPlan, WorkerShare, most_passes
from rl_core.planning.settings import Settled, as_yaml


def plan_facts(config: RunConfig, plan: BatchPlan) -> dict[str, str]:
    """[what] -> how much, from an epoch to a micro-batch."""
    left_out = f"; {plan.rows_left_out_per_epoch} rows are left out" if plan.rows_left_out_per_epoch else ""
    facts = {
        "an epoch": f"{plan.train_rows} rows / {plan.prompts_per_step} = {plan.steps_per_epoch} steps{left_out}",
        "the run": f"{plan.total_steps} steps in {plan.epochs} epoch(s), {plan.total_optimizer_steps} optimizer steps",
        "a step": f"{plan.prompts_per_step} prompts x {config.rollout.n} = {plan.samples_per_step} responses",
        "its update": f"{plan.optimizer_steps_per_step} optimizer steps of {plan.samples_per_optimizer_step} responses",
        "a micro-batch": f"up to {plan.update_token_budget:,} tree tokens",
    }
    filtering = config.algorithm.online_filtering
    if filtering is not None:
        facts["a draw"] = (
            f"{plan.prompts_per_draw} prompts, until {plan.prompts_per_step} groups pass the filter; "
            f"at most {filtering.max_try_make_batch} draws a step"
        )
    return facts


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkRow:
    """A part of a step in words: what all workers do of it, and each of those among whom it is dealt."""

    what: str
    together: str
    each: str


def workers_title(config: RunConfig) -> str:
    """How many workers a step is dealt to."""
    cluster = config.cluster
    machines = "1 machine" if cluster.nodes == 1 else f"{cluster.nodes} machines"
    split = f", {cluster.generating_devices} of each machine generate beside the others" if cluster.is_split else ""
    return f"A step on {cluster.ranks} workers: {machines} x {cluster.devices}, sharding {cluster.sharding}{split}"


def work_rows(config: RunConfig, plan: BatchPlan) -> list[WorkRow]:
    """From the prompts of a step to the passes of a learner; empty for a run with one worker."""
    if config.cluster.ranks == 1:
        return []
    share, n, cluster = WorkerShare.of(config), config.rollout.n, config.cluster
    groups = plan.samples_per_optimizer_step // n
    passes = most_passes(config, plan, share.groups)
    return [
        WorkRow(
            what="generation",
            together=f"{plan.prompts_per_step:,} prompts = {plan.samples_per_step:,} responses",
            each=f"{_owner('generator', share.engines, cluster.tensor_parallel_size)}: up to {share.prompts} prompts "
            f"= {share.prompts * n} responses",
        ),
        WorkRow(
            what=f"an optimizer step, {plan.optimizer_steps_per_step} in a step",
            together=f"{groups:,} groups of {n} = {plan.samples_per_optimizer_step:,} responses",
            each=f"{_owner('learner', share.learners, cluster.sequence_parallel_size)}: up to {share.groups} groups "
            f"= {share.groups * n} responses" + ("; some take none and wait" if groups < share.learners else ""),
        ),
        WorkRow(
            what="its forward and backward passes",
            together="equally many on all learners",
            each=f"at most {passes:,}, of up to {plan.update_token_budget:,} tree tokens"
            + _sliced(cluster.sequence_parallel_size),
        ),
    ]


def _owner(role: str, count: int, workers: int) -> str:
    return f"each of {count} {role}s" + (f" of {workers} workers" if workers > 1 else "")


def _sliced(workers: int) -> str:
    return f", a slice of 1/{workers} on each of its workers" if workers > 1 else ""


def trained_words(model: ModelConfig) -> str:
    """The part of the model that RL trains."""
    if model.lora is not None:
        return f"LoRA adapters of rank {model.lora.rank}"
    return "all weights but the vision tower's" if model.freeze_vision_tower else "all weights"


def precision_words(model: ModelConfig, optim: OptimConfig) -> str:
    """Number formats of forward and backward passes, of the generator and of the optimizer."""
    if model.dtype == "float32":
        return "float32 throughout"
    kept = "; gradients and first moment bfloat16" if optim.strategy == "adamw_bf16" else ""
    return f"{model.dtype} arithmetic, float32 master weights{kept}"


def engine_words(rollout: RolloutConfig, *, on_gpu: bool) -> str:
    """Whether vLLM compiles the model, and who decided it."""
    chosen = "eager" if rollout.is_eager(on_gpu=on_gpu) else "compiled, with graphs"
    why = f"auto, on a {'GPU' if on_gpu else 'CPU'}" if rollout.enforce_eager == "auto" else "as configured"
    return f"{chosen} ({why})"


def threads_words(cluster: ClusterConfig) -> str:
    """The number of threads of each worker on CPUs, and what it comes from."""
    if cluster.threads is not None:
        why = "cluster.threads"
    elif asked_threads() is not None:
        why = "OMP_NUM_THREADS; cluster.threads would keep it on every machine"
    else:
        why = "its share of the cores here; cluster.threads would keep it on every machine"
    return f"{threads_of_a_worker(cluster.devices, fixed=cluster.threads)} for each worker ({why})"


def settings_words(settled: Settled) -> str:
    """What was chosen for the settings that are `auto`, and why."""
    if not settled.values:
        return "as configured"
    chosen = ", ".join(f"{key} {as_yaml(value)}" for key, value in settled.values.items())
    return f"{chosen} (auto: {settled.why})"
