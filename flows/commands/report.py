"""`sightline report`: what a run came to. For a finished run its folder says it, in a second and without Prefect."""

from datetime import UTC, datetime

from rich.console import Console

from flows.commands.run import carry_out
from flows.commands.tables import print_summary
from flows.request import ResolvedRun, RunRequest
from tasks.cache.manifests import StageManifest, read_manifest
from tasks.cache.reuse import valid_manifest
from tasks.cache.stages import stage_digests


def carry_out_report(request: RunRequest, console: Console) -> int:
    """Print what a finished run came to, or make the report with everything that it needs. Returns the exit code: 0, 1
    for a failure, 130 after Ctrl-C and 143 after SIGTERM. Raises ConfigError where the config is refused. Raises
    ValueError where a file that the config names cannot be read."""
    resolved = request.resolved(datetime.now(UTC))
    manifest = _manifest(resolved)
    if manifest is None:
        return carry_out("baseline", request, console)
    console.print(f"[bold]{resolved.run.name}[/bold]", highlight=False)
    console.print("[green]✓[/green] report: finished before", highlight=False)
    print_summary(resolved.run, console)
    return 0


def _manifest(resolved: ResolvedRun) -> StageManifest | None:
    """The manifest of a report that can be shown; None if it has to be made. The report depends on every other stage,
    but nothing is made of their files any more, so whether these are still there is not checked.

    A run that is named itself, and not by a config file, has the report that it has: a command that prints results does
    not train again because a later version would.
    """
    manifest = read_manifest(resolved.run, "report")
    if manifest is None or not (resolved.is_continued or manifest.digest == _digest(resolved)):
        return None
    return valid_manifest(resolved.run, "report", manifest.digest)


def _digest(resolved: ResolvedRun) -> str:
    return stage_digests(resolved.config, resolved.files(is_frozen=True))["report"]
