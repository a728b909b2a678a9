"""The batch arithmetic in words, for `sightline plan` and for the flow's page."""

from rl_core.config.run import RunConfig
from rl_core.planning.batches import BatchPlan


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
