"""`sightline plan`: what would run, in under two seconds. Imports neither Prefect nor torch."""

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from flows.request import RunRequest
from rl_core.config.loading import dump_config
from rl_core.config.run import RunConfig
from rl_core.planning.batches import BatchPlan
from rl_core.planning.disk import disk_forecast
from rl_core.planning.memory import GIB, memory_forecast
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.precision import engine_words, precision_words, trained_words
from rl_core.planning.problem import Problem
from tasks.named_files import located_config
from tasks.plan_facts import plan_facts
from tasks.problems import find_gpu, static_problems
from tasks.stage_status import StageStatus, known_batch_plan, stage_statuses
from tasks.stages import stage_digests


def print_plan(request: RunRequest, console: Console, *, with_config: bool) -> int:
    """Show the plan. Returns the exit code: 1 when the run could not work."""
    config, run, files = request.config, request.run, request.files()
    problems = static_problems(located_config(config, files), run)
    console.print(f"[bold]{run.name}[/bold]  [dim]{run.root}[/dim]", highlight=False)
    if not any(problem.fatal for problem in problems):
        digests = stage_digests(config, files)
        plan = known_batch_plan(config, run, digests)
        console.print(_stage_table(stage_statuses(config, run, digests, reuse=request.reuse, plan=plan, files=files)))
        if plan:
            console.print(batch_table(config, plan))
        _print_forecast(config, console)
    code = _print_problems(problems, console)
    if with_config:
        console.print(Syntax(dump_config(config), "yaml", background_color="default"))
    return code


def _stage_table(statuses: list[StageStatus]) -> Table:
    table = Table(title="Stages", title_justify="left")
    table.add_column("stage")
    table.add_column("status")
    for status in statuses:
        table.add_row(status.stage, f"[green]{status.status}[/green]" if status.is_finished else status.status)
    return table


def batch_table(config: RunConfig, plan: BatchPlan) -> Table:
    """What the batch sizes come to."""
    table = Table(title="Batches", title_justify="left", show_header=False)
    for name, value in plan_facts(config, plan).items():
        table.add_row(name, value)
    return table


def _print_forecast(config: RunConfig, console: Console) -> None:
    gpu = find_gpu()
    precision = precision_words(config.model, config.actor.optim)
    engine = engine_words(config.rollout, on_gpu=gpu is not None)
    console.print(f"trained: {trained_words(config.model)}; precision: {precision}; engine: {engine}", highlight=False)
    sizes = model_sizes(config.model.source)
    if sizes is None:
        console.print("memory and disk: known once the model was downloaded")
        return
    memory = memory_forecast(config, sizes, gpu_gib=(gpu.memory_gib or 0.0) if gpu else None)
    disk = disk_forecast(config, sizes).total_bytes / GIB
    place = "GPU" if gpu else "machine's memory"
    if gpu is not None and gpu.memory_gib is None:
        place = "GPU, whose size is not known, without a KV cache"
    console.print(
        f"{sizes.parameters / 1e6:,.1f} M parameters; about {memory.peak_gib:.1f} GiB of the {place}, "
        f"up to {disk:.1f} GiB of disk",
        highlight=False,
    )


def _print_problems(problems: list[Problem], console: Console) -> int:
    for problem in problems:
        label = "[bold red]problem[/bold red]" if problem.fatal else "[yellow]warning[/yellow]"
        console.print(f"{label} ", end="")
        console.print(str(problem), markup=False, highlight=False, soft_wrap=True)
    return int(any(problem.fatal for problem in problems))
