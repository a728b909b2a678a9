"""`sightline report`: what a run came to. Of a finished run its folder tells, in a second and without Prefect."""

from datetime import UTC, datetime

from rich.console import Console

from flows.commands.run import Order, carry_out
from flows.commands.tables import print_summary
from flows.request import RunRequest
from tasks.cache.reuse import standing_manifest
from tasks.cache.stages import stage_digests


def carry_out_report(order: Order, console: Console) -> int:
    """Print what a finished run came to, or make the report with everything that it needs.

    Returns:
        The exit code, as of carry_out.

    Raises:
        ConfigError: the config is refused.
        ValueError: a file that the config names cannot be read.
    """
    request = order.asked.resolved(datetime.now(UTC))
    if not has_report(request):
        return carry_out(order, console)
    console.print(f"[bold]{request.run.name}[/bold]", highlight=False)
    console.print("[green]✓[/green] report: finished before", highlight=False)
    print_summary(request.run, console)
    return 0


def has_report(request: RunRequest) -> bool:
    """Whether the run's report stands. It depends on every other stage; whether their files are still there is not
    looked at, for nothing is to be made of them."""
    digests = stage_digests(request.config, request.files(is_settled=True))
    return standing_manifest(request.run, "report", digests["report"]) is not None
