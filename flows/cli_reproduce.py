"""`sightline reproduce`: a published baseline by its name, from the plan to the verdict."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.cli_plan import batch_table
from flows.request import resolve_request
from rl_core.config.published import PublishedConfig
from rl_core.config.run import RunConfig
from rl_core.evaluation.protocols.registry import protocol_named
from rl_core.evaluation.reproduction import Reproduction, published_band
from rl_core.planning.batches import batch_plan
from rl_core.planning.memory import memory_forecast
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.problem import Problem
from tasks.reproduction import dry_run_problems, judge_run, obstacles, published_of

BASELINES = Path("configs/baselines")

_COLOURS = {"reproduced": "green", "above": "green", "below": "red", "not comparable": "yellow"}


def baseline_path(name: str, folder: Path = BASELINES) -> Path:
    """The config of a baseline, by its name or its path. Raises ValueError naming those that there are."""
    for path in (Path(name), folder / f"{name}.yaml"):
        if path.is_file():
            return path
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    raise ValueError(f"there is no baseline {name}; {folder} has {', '.join(known) or 'none'}")


def reproduce_baseline(name: str, overrides: Sequence[str], console: Console, *, runs_dir: str, dry_run: bool) -> int:
    """Print the plan of a baseline; unless it is a dry run, carry it out and say whether it reproduces the published
    number.

    Returns:
        The exit code: 0 for a dry run without a problem, and for a run that is neither below nor incomparable.

    Raises:
        ValueError: there is no such baseline, or its config is refused.
    """
    path = baseline_path(name)
    request, baseline = (resolve_request(path, changes, runs_dir=runs_dir) for changes in (overrides, ()))
    problems = dry_run_problems(request.config)
    _print_plan(request.config, baseline.config, problems, console)
    if any(problem.fatal for problem in problems):
        return 1
    if dry_run:
        return 0
    from flows.cli_run import Order, carry_out

    order = Order(flow="baseline", target=str(path), overrides=list(overrides), runs_dir=runs_dir)
    if code := carry_out(order, console):
        return code
    found = judge_run(request.run, baseline.config)
    print_reproduction(found, published_of(baseline.config), console)
    return int(found.outcome in ("below", "not comparable"))


def print_reproduction(found: Reproduction, published: PublishedConfig, console: Console) -> None:
    """The verdict, both numbers with their intervals, and what stands between them."""
    low, high = found.ci95
    console.print(f"\n[bold {_COLOURS[found.outcome]}]{found.outcome}[/]", highlight=False)
    console.print(
        f"  this run: {found.accuracy_before:.3f} -> {found.accuracy:.3f} (95 % {low:.3f} to {high:.3f})",
        highlight=False,
    )
    console.print(f"  published: {_published_words(published)}", highlight=False, markup=False, soft_wrap=True)
    for obstacle in found.obstacles:
        console.print(f"  {obstacle}", highlight=False, markup=False, soft_wrap=True)


def _print_plan(config: RunConfig, baseline: RunConfig, problems: Sequence[Problem], console: Console) -> None:
    published = published_of(config)
    console.print(f"[bold]{config.experiment}[/bold]", highlight=False)
    console.print(_published_table(published))
    if not any(problem.fatal for problem in problems):
        console.print(batch_table(config, batch_plan(config, published.train_rows)))
    console.print(_memory_table(config))
    console.print(_hours_words(published), highlight=False, soft_wrap=True)
    for obstacle in obstacles(config, baseline):
        console.print(f"[yellow]not comparable[/yellow] {obstacle}", highlight=False, soft_wrap=True)
    for problem in problems:
        label = "[bold red]problem[/bold red]" if problem.fatal else "[yellow]warning[/yellow]"
        console.print(f"{label} ", end="")
        console.print(str(problem), markup=False, highlight=False, soft_wrap=True)


def _published_table(published: PublishedConfig) -> Table:
    table = Table(title="Published", title_justify="left", show_header=False)
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


def _memory_table(config: RunConfig) -> Table:
    table = Table(title="Memory of one worker with the whole model", title_justify="left", show_header=False)
    sizes = model_sizes(config.model.source)
    if sizes is None:
        table.add_row("known once the model was downloaded")
        return table
    forecast = memory_forecast(config, sizes)
    table.add_row("parameters", f"{sizes.parameters / 1e9:.2f} G")
    for row in forecast.rows:
        table.add_row(row.name, f"{row.gib:.1f} GiB")
    table.add_row("at most at one time", f"{forecast.peak_gib:.1f} GiB")
    return table


def _hours_words(published: PublishedConfig) -> str:
    speed = published.speed
    if speed is None:
        return "expected hours: not known, the reference tells no speed"
    hours = published.total_steps * speed.seconds_per_step / 3600
    return (
        f"expected hours: {hours:.1f} on {speed.num_devices} x {speed.device} at the reference's "
        f"{speed.seconds_per_step:g} s a step, {hours * speed.num_devices:.0f} of one such device ({speed.source})"
    )
