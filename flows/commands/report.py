"""`sightline report`: what a run came to. For a finished run its folder says it, in a second and without Prefect."""

from datetime import UTC, datetime

from rich.console import Console

from flows.commands.run import carry_out
from flows.commands.tables import print_summary
from flows.request import ResolvedRun, RunRequest
from tasks.cache.reuse import valid_manifest
from tasks.cache.stages import stage_digests


def carry_out_report(request: RunRequest, console: Console) -> int:
    """Print what a finished run came to, or make the report with everything that it needs.

    Returns:
        The exit code: 0, 1 for a failure, 130 after Ctrl-C and 143 after SIGTERM.

    Raises:
        ConfigError: the config is refused.
        ValueError: a file that the config names cannot be read.
    """
    resolved = request.resolved(datetime.now(UTC))
    if not has_report(resolved):
        return carry_out("baseline", request, console)
    console.print(f"[bold]{resolved.run.name}[/bold]", highlight=False)
    console.print("[green]✓[/green] report: finished before", highlight=False)
    print_summary(resolved.run, console)
    return 0


def has_report(resolved: ResolvedRun) -> bool:
    """Whether the run has a report that is still valid. The report depends on every other stage, but nothing is made of
    their files any more, so whether these are still there is not checked."""
    digests = stage_digests(resolved.config, resolved.files(is_settled=True))
    return valid_manifest(resolved.run, "report", digests["report"]) is not None
