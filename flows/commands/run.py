"""Runs a flow at a terminal, with bars, messages and exit codes. `sightline report` of a finished run needs no flow."""

import dataclasses
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from flows.printing import cause_of, print_line, table_of
from flows.process.bars import progress_on
from flows.process.watcher import Watcher, watched_by
from flows.request import FROZEN, ResolvedRun, RunRequest, find_run, newest_run, path_of, resume_command
from flows.run_set import RunSet
from flows.seed_group import SeedGroup
from rl_core.config.loading import ConfigError, load_config
from rl_core.families.own import own_family
from rl_core.files import read_json
from rl_core.planning.hub import SECONDS_OF_PLAN, ask_hub, hub_problems
from rl_core.problem import raise_if_fatal
from rl_core.progress import Progress
from rl_core.run_directory import RunDirectory
from tasks.cache.amendments import read_amendments
from tasks.cache.manifests import StageManifest, read_manifest
from tasks.cache.named_files import located_config
from tasks.cache.reuse import valid_manifest
from tasks.cache.stages import FOLLOWED_LENGTH, stage_digests
from tasks.planning.problems import first_problems, glance_at
from tasks.resuming.amending import check_fork, checkpoint_to_fork
from tasks.resuming.differing import why_it_cannot_go_on

_DONE, _FAILED = "[green]done[/green]", "[bold red]failed[/bold red]"
_STAGES_LOGGER = "tasks.staging"
_PRINTED_LOGGERS = ("rl_core.tracking.console_tracker", "rl_core.loop.target", "tasks.train", "flows.process.set_runs")
"""Loggers whose messages are shown as they are: the steps, where training continues and why it ends early, and the runs
of a set."""


def carry_out(flow: str, request: RunRequest, console: Console, *, brief: bool = False, stretch: bool = False) -> int:
    """Run a flow ("baseline", "prepare", "train", "evaluate" or "merge") and print how it ended; where `brief`, without
    the run's name and as one line, because others print at the same time. With `stretch` the training of a run whose
    learning rate follows its length goes on where nothing else has changed. Returns the exit code: 0, 1 for a failure,
    130 after Ctrl-C and 143 after SIGTERM. Raises ConfigError where the config is refused, and PlanError where a look
    at it shows that the run cannot work."""
    resolved = dataclasses.replace(request, fresh=False).resolved(datetime.now(UTC), is_frozen=flow in FROZEN)
    if resolved.predecessor is not None and not request.fresh:
        request, resolved = _decided(request, resolved, console, stretch=stretch)
    _look_at(resolved)
    run = resolved.run
    # The flow itself adds its start to the name of a fresh run.
    if not brief:
        console.print(f"[bold]{run.name}[/bold]{', fresh' if request.fresh else ''}", highlight=False)
    with ExitStack() as stack:
        watcher = Watcher(progress=stack.enter_context(progress_on(console)))
        stack.enter_context(messages(console))
        stack.enter_context(watched_by(watcher))
        with watcher.progress.wait("load Prefect"):
            from flows import baseline

            called = getattr(baseline, flow if flow == "baseline" else f"{flow}_part")
        parameters = {key: value for key, value in dataclasses.asdict(request).items() if value or key == "runs_dir"}
        error = _call_flow(called, parameters, watcher.progress)
    return _print_ending(flow, watcher.run or run, watcher, error, console, brief=brief)


def _look_at(resolved: ResolvedRun) -> None:
    """Find what can be found in a moment, before Prefect is reached, which takes many seconds. Preflight finds all of
    it too; a run that is continued has passed it, and its files may have to be fetched. Raises PlanError."""
    run, files = resolved.run, resolved.files()
    if resolved.is_continued or read_manifest(run, "report") is not None:
        return
    located, is_prepared = located_config(resolved.config, files), read_manifest(run, "prepare") is not None
    glances = {} if is_prepared else glance_at(located)
    # What the cache has is used where the hub is not there, so it need not be asked for that.
    answers = [] if is_prepared else ask_hub(located, seconds=SECONDS_OF_PLAN, if_cached=False)
    with own_family(located.model.family):
        raise_if_fatal([*first_problems(located, glances), *files.problems(), *hub_problems(answers)])


def _decided(
    request: RunRequest, resolved: ResolvedRun, console: Console, *, stretch: bool
) -> tuple[RunRequest, ResolvedRun]:
    """What is done where a run of this recipe has begun with other files: a person at a terminal is asked. Raises
    ConfigError where only the length differs, which the learning rate follows, and `stretch` was not given."""
    there = resolved.predecessor
    assert there is not None, "else nothing is to be decided"
    kept = dataclasses.replace(request, keep_training=True)
    if list(resolved.differs) == [FOLLOWED_LENGTH]:
        if stretch:
            return kept, kept.resolved(datetime.now(UTC))
        raise ConfigError(
            f"the learning rate of {there.name} follows its length: with --stretch its training goes on with the rate "
            "of the longer run from its last checkpoint on; with --fork a new run goes on so from there, and this one "
            "stays as it is"
        )
    print_line(console, resolved.why_new, label="[yellow]note[/yellow]")
    if why_it_cannot_go_on(there, resolved.differs) is not None:
        return request, resolved
    if not console.is_terminal or not sys.stdin.isatty():
        print_line(console, f"--keep-training goes on with {there.name} instead, from its last checkpoint", style="dim")
        return request, resolved
    if not typer.confirm(f"Go on with the training of {there.name} instead, from its last checkpoint?"):
        return request, resolved
    return kept, kept.resolved(datetime.now(UTC))


def fork_of(
    config: str, resume: str, overrides: Sequence[str], runs_dir: str, *, step: int | None = None
) -> tuple[str, list[str]]:
    """The config file and the overrides of a run that goes on from a checkpoint (by default the newest) of the run to
    which a config file, a run's folder or `resume` leads. Raises ConfigError where there is no checkpoint, or it does
    not fit the config."""
    if resume or path_of(config, runs_dir).is_dir():
        run = find_run(resume or config, runs_dir)
        config = str(run.config)
    else:
        run = newest_run(config, overrides, runs_dir)
    forked = [f"forked_from.run={run.name}", f"forked_from.step={checkpoint_to_fork(run, step).step}"]
    check_fork(run, load_config(Path(config), [*overrides, *forked]))
    return config, [*overrides, *forked]


def _call_flow(flow: Any, parameters: Mapping[str, Any], progress: Progress) -> BaseException | None:
    """Call a flow. Returns the error with which Prefect, or the flow before its body, ended; None if there was none."""
    from flows.process.embedded_server import PrefectAway, reached_prefect
    from tasks.pages.artifacts import UNREACHABLE

    try:
        with ExitStack() as stack:
            with progress.wait("reach Prefect's server"):
                stack.enter_context(reached_prefect())
            state = flow(**parameters, return_state=True)
            result = state.result(raise_on_failure=False)
    except (PrefectAway, *UNREACHABLE, RuntimeError) as error:
        return error
    return result if isinstance(result, BaseException) else None


def carry_out_set(run_set: RunSet, flow: Any, print_result: Callable[[RunSet, Console], int], console: Console) -> int:
    """Call the flow that a deployment calls for a set of runs. A run draws its own progress bars; if several are
    carried out at a time, they print lines. Returns the exit code: that of `print_result`, 1 for a failure, 130 after
    Ctrl-C and 143 after SIGTERM."""
    run_set.save()
    watcher = Watcher()
    with messages(console), watched_by(watcher):
        error = _call_flow(flow, {"resume": run_set.name, "runs_dir": run_set.runs_dir}, watcher.progress)
    if watcher.completed:
        return print_result(run_set, console)
    if watcher.stop.signum is not None:
        return _print_stopped(watcher.stop.signum, run_set.command, console)
    print_line(console, cause_of(watcher.error or error), label=_FAILED)
    print_line(console, f"to continue: {run_set.command}", style="dim")
    return 1


@contextmanager
def messages(console: Console) -> Iterator[None]:
    """Show warnings of the project, and which stages were made or recognised; the run's log has the rest."""
    logging.captureWarnings(True)
    handler = _ConsoleHandler(console)
    names = ("flows", "tasks", "rl_core")
    for name in names:
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.INFO)
    try:
        yield
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(handler)


class _ConsoleHandler(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            return  # the command prints the error at its end, and the run's log has the traceback
        if record.levelno >= logging.WARNING:
            print_line(self._console, record.getMessage(), label=f"[yellow]{record.levelname.lower()}[/yellow]")
        elif record.name == _STAGES_LOGGER:
            print_line(self._console, record.getMessage(), label="[green]✓[/green]")
        elif record.name in _PRINTED_LOGGERS:
            print_line(self._console, record.getMessage())


def _print_ending(
    flow: str, run: RunDirectory, watcher: Watcher, error: BaseException | None, console: Console, *, brief: bool
) -> int:
    if watcher.completed:
        from flows.commands.tables import print_evaluations, print_summary  # loads scipy, which takes seconds

        if error is not None:
            print_line(
                console, f"Prefect's server went away ({error}); the run is complete", label="[yellow]warning[/yellow]"
            )
        if brief:
            base, trained = (read_json(run.summary)["evaluation"][model]["accuracy"] for model in ("base", "trained"))
            print_line(console, f"held-out accuracy {base:.1%} -> {trained:.1%}, {run.report}", label=_DONE)
        elif flow == "baseline":
            print_summary(run, console)
        elif flow == "evaluate":
            print_evaluations(run, console)
        else:
            print_line(console, str(run.root), label=_DONE)
        return 0
    if watcher.stop.signum is not None:
        return _print_stopped(watcher.stop.signum, resume_command(run), console)
    print_line(Console(stderr=True), cause_of(watcher.error or error), label=_FAILED)
    if run.log.is_file():
        print_line(console, f"details: {run.log}; to continue: {resume_command(run)}", style="dim")
    return 1


def _print_stopped(signum: int, command: str, console: Console) -> int:
    """Print how to continue after a signal. Returns the exit code for the shell."""
    name = signal.Signals(signum).name
    console.print(f"[yellow]stopped[/yellow] by {name}; what was finished is kept. To continue:", highlight=False)
    print_line(console, f"  {command}")
    return 128 + signum


def run_group(group: SeedGroup, console: Console) -> int:
    """Carry out the runs of a group and print their accuracies. Returns the exit code, as `carry_out_set` does. Raises
    PlanError where a look at the config shows that the first run cannot work."""
    _look_at(group.planned()[0].resolved)
    from flows.baseline_seeds import baseline_seeds

    print_line(console, group.name, style="bold")
    return carry_out_set(group, baseline_seeds, print_group, console)


def print_group(run_set: RunSet, console: Console) -> int:
    """Print the results of a concluded group, which are read from its folder. Returns the exit code."""
    figures = read_json(run_set.page.with_suffix(".json"))
    (group,) = figures["groups"]
    numbers = ("seed", "before", "after")
    table = table_of(*numbers, "run", title=f"Held-out accuracy, {figures['mode']}", right=numbers)
    for run in figures["runs"]:
        table.add_row(f"{run['seed']}", f"{run['base']:.1%}", f"{run['trained']:.1%}", run["run"])
    console.print()
    console.print(table)
    console.print(group["over_seeds"], highlight=False)
    for behind in group["stragglers"]:
        print_line(console, f"{behind['seed']} stayed behind: {behind['cause']}", label="[yellow]seed[/yellow]")
    print_line(console, str(run_set.page), label=_DONE)
    return int(any(behind["accuracy"] is None for behind in group["stragglers"]))


def carry_out_report(request: RunRequest, console: Console) -> int:
    """Print what a finished run came to, or make the report with everything that it needs. Returns the exit code: 0, 1
    for a failure, 130 after Ctrl-C and 143 after SIGTERM. Raises ConfigError where the config is refused. Raises
    ValueError where a file that the config names cannot be read."""
    resolved = request.resolved(datetime.now(UTC))
    manifest = _manifest(resolved)
    if manifest is None:
        return carry_out("baseline", request, console)
    from flows.commands.tables import print_summary

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
    if manifest is None:
        return None
    if (
        not resolved.is_continued
        and manifest.digest != stage_digests(resolved.config, amendments=read_amendments(resolved.run))["report"]
    ):
        return None
    return valid_manifest(resolved.run, "report", manifest.digest)
