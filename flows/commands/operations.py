"""Commands for the operation of many runs: `sightline reproduce`, `runs`, `clean`, `doctor`, `ui`, `server`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.commands.options import Overrides, RunsDir, all_overrides, without_changes
from rl_core.run_directory import RUNS_DIR

_MLFLOW_URI = "sqlite:///mlflow.db"

MlflowUri = Annotated[str, typer.Option(help="The database or server that runs are tracked in.")]
MlflowPort = Annotated[int, typer.Option(help="Port of MLflow's pages.")]
PrefectPort = Annotated[int, typer.Option(help="Port of Prefect's server and pages.")]


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help="Names of baselines in configs/baselines, or files; then KEY=VALUE for keys to change.",
        ),
    ] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="Run every baseline in configs/baselines.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plans and stop.")] = False,
    overrides: Overrides = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="SEEDS", help="Run each baseline with each of these seeds, and judge it by all: 1-3."),
    ] = None,
    resume: Annotated[str | None, typer.Option(metavar="SET", help="Continue this set, by its name.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start new runs that take over nothing from others.")] = False,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Run published baselines and say whether their numbers are reproduced and whether one became worse."""
    from flows.commands.reproduce import reproduce_set
    from flows.reproducing import ALL, BaselineSet

    baselines, changes = without_changes(names or [])
    baseline_set = BaselineSet.of_parameters(
        {
            "baselines": [ALL] if all_of_them else baselines,
            "overrides": all_overrides(changes, overrides),
            "seeds": seeds or "",
            "resume": resume or "",
            "fresh": fresh,
            "runs_dir": runs_dir,
        },
        datetime.now(UTC),
    )
    raise typer.Exit(reproduce_set(baseline_set, Console(), dry_run=dry_run))


def runs(runs_dir: RunsDir = RUNS_DIR) -> None:
    """List every run: state, held-out accuracy, step, size on disk, age."""
    from flows.commands.runs import print_runs

    print_runs(Path(runs_dir), Console())


def clean(
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Only runs that have not changed for this long: 12h, 30d, 8w.")
    ] = "",
    failed: Annotated[bool, typer.Option("--failed", help="Runs that failed or whose process was killed.")] = False,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Finished runs whose config has a later run that finished too.")
    ] = False,
    earlier: Annotated[
        bool,
        typer.Option(
            "--earlier", help="Remove nothing but the stages that were made again: the folder earlier of these runs."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove these runs; without --yes they are only shown.")] = False,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Remove runs by a rule; never a champion, a good baseline, a running run, or a run that another run needs."""
    from flows.commands.runs import clean_runs
    from tasks.housekeeping.removal import rule_of

    rule = rule_of(older_than=older_than, failed=failed, superseded=superseded, earlier=earlier)
    raise typer.Exit(clean_runs(rule, Path(runs_dir), Console(), remove=yes))


def doctor(
    runs_dir: RunsDir = RUNS_DIR,
    device: Annotated[
        bool, typer.Option("--device", help="Check the GPUs or the CPU with a tiny model instead; takes some minutes.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="CONFIG", help="With --device: check the model of this config too, with random weights."),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="With --device or --model: how many GPUs, or processes on a CPU; all GPUs if none."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Make the certificate of a model instead, a folder or a name of the hub: it is checked with its "
            "widths, few layers and random weights; takes some minutes.",
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:FAMILY", help="With --model: its family, if it is one of your own (`model.family`)."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="With --device or --model: write the findings to this JSON file.")
    ] = None,
) -> None:
    """Find runs whose process is gone, correct their state in Prefect, and say how to continue them; or check the
    device, or a model."""
    if device and model:
        raise ValueError("--device and --model are two commands")
    if config and not device:
        raise ValueError("--config says how to check the device: add --device")
    if not (device or model) and (devices or output):
        raise ValueError("--devices and --output say how to check the device or a model: add --device or --model MODEL")
    if family and not model:
        raise ValueError("--family says of which family a model is: add --model MODEL")
    if model:
        from flows.commands.doctor import check_model

        raise typer.Exit(check_model(model, output, Console(), family=family, devices=devices))
    if device:
        from flows.commands.doctor import check_device
        from rl_core.config.loading import load_config
        from tasks.cache.named_files import located_config

        checked = None if config is None else located_config(load_config(config))
        raise typer.Exit(check_device(output, Console(), config=checked, devices=devices))
    from flows.commands.doctor import examine

    examine(Path(runs_dir), Console())


def ui(mlflow_uri: MlflowUri = _MLFLOW_URI, mlflow_port: MlflowPort = 5000, prefect_port: PrefectPort = 4200) -> None:
    """Open the pages of MLflow and Prefect, reachable from this machine only."""
    from flows.commands.ui import page_servers, serve_pages

    servers = page_servers(mlflow_uri=mlflow_uri, mlflow_port=mlflow_port, prefect_port=prefect_port)
    raise typer.Exit(serve_pages(servers, Console()))


def server(
    mlflow_uri: MlflowUri = _MLFLOW_URI,
    mlflow_port: MlflowPort = 5000,
    prefect_port: PrefectPort = 4200,
    worker_port: Annotated[
        int, typer.Option(help="Port of the worker's health check; those of groups have the next ones.")
    ] = 8080,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="DEVICES",
            help="Devices that one training has for itself: numbers of GPUs (0,1) or a Ray cluster (HOST:PORT). Give "
            "it once for each training that may run at the same time.",
        ),
    ] = None,
) -> None:
    """Start Prefect's server, a worker for the deployments, and MLflow, reachable from this machine only."""
    from flows.commands.server import serve_with_workers

    code = serve_with_workers(
        Console(),
        mlflow_uri=mlflow_uri,
        mlflow_port=mlflow_port,
        prefect_port=prefect_port,
        worker_port=worker_port,
        groups=groups or (),
    )
    raise typer.Exit(code)
