"""`sightline reproduce`: published baselines by their names, from the plan to their status."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.commands.plan import print_batches, print_forecast, print_problems
from flows.printing import print_line, table_of
from flows.reproducing import BaselineSet, PlannedBaseline
from flows.run_set import RunSet
from flows.seed_group import seeds_text
from rl_core.config.stages import PublishedConfig
from rl_core.evaluation.protocols.registry import protocol_named
from rl_core.evaluation.reproduction import published_band
from rl_core.files import read_json
from rl_core.planning.batches import batch_plan
from rl_core.planning.gpu import Gpu
from tasks.reproduction.published_result import dry_run_problems, obstacles, published_of


def _print_baseline_plan(plans: Sequence[PlannedBaseline], console: Console) -> bool:
    """Print what the runs of a baseline would be, which differ in their seed only, on GPUs of a kind that is not known.
    Returns whether they could work. Raises ValueError where the config has no section `published`."""
    plan = plans[0]
    config, published = plan.resolved.config, published_of(plan.resolved.config)
    problems = dry_run_problems(config)
    can_work = not any(problem.fatal for problem in problems)
    console.print(f"[bold]{config.experiment}[/bold]", highlight=False)
    console.print(_published_table(published))
    if can_work:
        print_batches(config, batch_plan(config, published.train_rows), console)
    gpu = Gpu(memory_gib=None, is_elsewhere=True)
    print_forecast(config, plan.resolved.run, console, gpu, with_step_time=False)
    console.print(_hours_words(published), highlight=False, soft_wrap=True)
    for obstacle in obstacles(config, plan.baseline):
        print_line(console, obstacle, label="[yellow]not comparable[/yellow]")
    print_problems(problems, console)
    if len(plans) > 1:
        seeds = seeds_text([plan.resolved.config.seed for plan in plans])
        console.print(f"seeds {seeds}: {len(plans)} runs as above, judged together", highlight=False, soft_wrap=True)
    return can_work


def _published_table(published: PublishedConfig) -> Table:
    table = table_of(title="Published")
    protocol = protocol_named(published.protocol)
    table.add_row("number", _published_words(published))
    table.add_row("source", published.source)
    table.add_row("conditions", published.conditions)
    table.add_row("protocol", f"{protocol.name}, digest {protocol.digest()}; prompt: {protocol.prompt_origin}")
    table.add_row("reference", f"{published.total_steps} steps, {published.steps_per_epoch} an epoch")
    return table


def _published_words(published: PublishedConfig) -> str:
    band = published_band(published)
    if published.accuracy is None or band is None:
        return "none"
    before = "" if published.accuracy_before is None else f"{published.accuracy_before:.2f} -> "
    tolerated = f"{band[0]:.3f} or more" if published.at_least else f"{band[0]:.3f} to {band[1]:.3f}"
    return f"{before}{published.accuracy:.2f} on {published.items} items; reproduced by {tolerated}"


def _hours_words(published: PublishedConfig) -> str:
    speed = published.speed
    if speed is None:
        return "expected hours: not known, the reference gives no speed"
    hours = published.total_steps * speed.seconds_per_step / 3600
    return (
        f"expected hours: {hours:.1f} on {speed.num_devices} x {speed.device} at the reference's "
        f"{speed.seconds_per_step:g} s a step, {hours * speed.num_devices:.0f} of one such device ({speed.source})"
    )


_COLOURS = {"good": "green", "regressed": "red", "failed": "red", "undecided": "yellow", "not comparable": "yellow"}


def reproduce_set(baseline_set: BaselineSet, console: Console, *, dry_run: bool) -> int:
    """Print the plan of every baseline; unless it is a dry run, carry the baselines out and print their status. Returns
    the exit code: 0 when all baselines are good, or in a dry run could work; 1 when one is not; 130 after Ctrl-C and
    143 after SIGTERM. Raises ValueError where a baseline is not there, or its config is refused."""
    could_work = [_print_baseline_plan(plans, console) for plans in baseline_set.by_baseline()]
    if not all(could_work):
        return 1
    if dry_run:
        return 0
    from flows.commands.run import carry_out_set
    from flows.reproduce import reproduce_baselines

    return carry_out_set(baseline_set, reproduce_baselines, print_conclusion, console)


def print_conclusion(run_set: RunSet, console: Console) -> int:
    """Print the results of a set, which are read from its folder. Returns the exit code."""
    baselines = read_json(run_set.page.with_suffix(".json"))["baselines"]
    table = table_of("baseline", "status", "accuracy", "95 % over seeds", "runs", title="Baselines")
    for one in baselines:
        status = f"[{_COLOURS[one['status']]}]{one['status']}[/]"
        table.add_row(one["name"], status, *_accuracies(one["reproduction"]), "\n".join(map(_run_words, one["runs"])))
    console.print()
    console.print(table)
    for one in baselines:
        for reason in one["reasons"]:
            console.print(f"{one['name']}: {reason}", markup=False, highlight=False, soft_wrap=True)
    print_line(console, str(run_set.page), label="[green]done[/green]")
    return int(any(one["status"] != "good" for one in baselines))


def _accuracies(found: Mapping[str, Any] | None) -> tuple[str, str]:
    if found is None:
        return "-", "-"
    over_seeds = found["ci95_over_seeds"]
    interval = f"{over_seeds[0]:.3f} to {over_seeds[1]:.3f}" if over_seeds else "one seed"
    return f"{found['accuracy_before']:.3f} -> {found['accuracy']:.3f}", interval


def _run_words(run: Mapping[str, Any]) -> str:
    accuracy = "no accuracy" if run["accuracy"] is None else f"{run['accuracy']:.3f}"
    return f"seed {run['seed']}: {accuracy}, {run['run']}"
