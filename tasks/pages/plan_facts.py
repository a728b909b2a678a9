"""What a run computes, in words: batches, number formats, settings. For `sightline plan` and for the flow's page."""

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


def workers_title(config: RunConfig) -> str:
    """How many workers a step is dealt to."""
    cluster = config.cluster
    machines = "1 machine" if cluster.nodes == 1 else f"{cluster.nodes} machines"
    split = (
        f", {cluster.generating_devices} of each machine generate while the others train" if cluster.is_split else ""
    )
    return f"A step on {cluster.ranks} workers: {machines} x {cluster.devices}, sharding {cluster.sharding}{split}"


def work_rows(config: RunConfig, plan: BatchPlan) -> list[tuple[str, str, str]]:
    """(part of a step, what all workers do of it, what each of those does to whom it is dealt), from the prompts to the
    passes of a learner; empty for a run with one worker."""
    if config.cluster.ranks == 1:
        return []
    share, n, cluster = WorkerShare.of(config), config.rollout.n, config.cluster
    groups = plan.samples_per_optimizer_step // n
    passes, sliced = most_passes(config, plan, share.groups), cluster.sequence_parallel_size
    return [
        (
            "generation",
            f"{plan.prompts_per_step:,} prompts = {plan.samples_per_step:,} responses",
            f"{_owner('generator', share.engines, cluster.tensor_parallel_size)}: up to {share.prompts} prompts "
            f"= {share.prompts * n} responses",
        ),
        (
            f"an optimizer step, {plan.optimizer_steps_per_step} in a step",
            f"{groups:,} groups of {n} = {plan.samples_per_optimizer_step:,} responses",
            f"{_owner('learner', share.learners, cluster.sequence_parallel_size)}: up to {share.groups} groups "
            f"= {share.groups * n} responses" + ("; some take none and wait" if groups < share.learners else ""),
        ),
        (
            "its forward and backward passes",
            "equally many on all learners",
            f"at most {passes:,}, of up to {plan.update_token_budget:,} tree tokens"
            + (f", a slice of 1/{sliced} on each of its workers" if sliced > 1 else ""),
        ),
    ]


def _owner(role: str, count: int, workers: int) -> str:
    return f"each of {count} {role}s" + (f" of {workers} workers" if workers > 1 else "")
