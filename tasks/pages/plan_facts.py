"""The batch arithmetic in words, for `sightline plan` and for the flow's page."""

from dataclasses import dataclass

from rl_core.config.run import RunConfig
from rl_core.planning.batches import BatchPlan, WorkerShare, most_passes


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
    """A part of a step on several workers, in words.

    Attributes:
        what: The part.
        together: What all workers do of it.
        each: What one of those does among whom it is dealt.
    """

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
    passes = most_passes(config, plan, share.groups.most)
    return [
        WorkRow(
            what="generation",
            together=f"{plan.prompts_per_step:,} prompts = {plan.samples_per_step:,} responses",
            each=f"{_owner('generator', share.engines, cluster.tensor_parallel_size)}: {share.prompts} prompts "
            f"= {share.prompts.times(n)} responses",
        ),
        WorkRow(
            what=f"an optimizer step, {plan.optimizer_steps_per_step} in a step",
            together=f"{groups:,} groups of {n} = {plan.samples_per_optimizer_step:,} responses",
            each=f"{_owner('learner', share.learners, cluster.sequence_parallel_size)}: {share.groups} groups "
            f"= {share.groups.times(n)} responses" + ("; some take none and wait" if not share.groups.least else ""),
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
