"""The command line: `sightline`. Commands import what they need when they run, so that each starts quickly."""

import signal
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from flows.commands.evaluate import evaluate
from flows.commands.operations import clean, doctor, reproduce, runs, server, ui
from flows.commands.options import Changes, Force, Out, Overrides, RunsDir, Target, all_overrides, without_changes
from flows.printing import cause_of, print_line
from flows.settings import set_console_defaults
from rl_core.run_directory import RUNS_DIR

app = typer.Typer(
    name="sightline",
    help="Post-train vision-language models with reinforcement learning: prepare, train, evaluate, merge, report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

imports = typer.Typer(help="Turn the configuration of another tool into one of Sightline.", no_args_is_help=True)
app.add_typer(imports, name="import")


def main() -> None:
    """Entry point. An error that a person can correct is a message with exit code 1, not a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A script that starts this in the background has it ignored, and all that is started here would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    set_console_defaults()
    # Of torch, where a library for tracking brings pynvml; nobody who reads our pages can do anything about it.
    warnings.filterwarnings("ignore", message="The pynvml package is deprecated", category=FutureWarning)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError) as error:
        print_line(Console(stderr=True), cause_of(error), label="[bold red]failed[/bold red]")
        sys.exit(1)


@app.command()
def run(
    config: Annotated[str | None, typer.Argument(metavar="CONFIG", help="A config file, or a run's folder.")] = None,
    changes: Changes = None,
    overrides: Overrides = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Continue this run or group of seeds.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start a new run that takes over nothing from others.")
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(metavar="SEEDS", help="Run the config with each of these seeds: 1-5, or 1,3,7-9.")
    ] = None,
    keep_training: Annotated[
        bool,
        typer.Option(
            "--keep-training", help="Where files of the config have changed, go on with them from the last checkpoint."
        ),
    ] = False,
    stretch: Annotated[
        bool,
        typer.Option("--stretch", help="Lengthen a run whose learning rate follows its length, from here on."),
    ] = False,
    fork: Annotated[
        bool, typer.Option("--fork", help="Do so in a new run, which goes on from the last checkpoint of that one.")
    ] = False,
    runs_dir: RunsDir = RUNS_DIR,
    brief: Annotated[bool, typer.Option("--brief", hidden=True, help="Print the result as one line.")] = False,
) -> None:
    """Train, evaluate and merge; after an interruption the same command continues."""
    configs, first = without_changes([config] if config else [])
    overrides = all_overrides([*first, *(changes or ())], overrides)
    from flows.seed_group import SeedGroup

    if seeds or (resume and SeedGroup.is_there(resume, runs_dir)):
        from flows.commands.run import run_group

        asked = {"config": configs[0] if configs else "", "overrides": overrides, "seeds": seeds or ""}
        parameters = {**asked, "resume": resume or "", "fresh": fresh, "runs_dir": runs_dir}
        raise typer.Exit(run_group(SeedGroup.of_parameters(parameters, datetime.now(UTC)), Console()))
    config = configs[0] if configs else None
    if fork:
        from flows.commands.run import fork_of

        config, overrides = fork_of(config or "", resume or "", overrides, runs_dir)
        resume = None
    _carry_out(
        "baseline",
        config,
        overrides,
        runs_dir,
        resume=resume,
        fresh=fresh,
        brief=brief,
        keep_training=keep_training,
        stretch=stretch,
    )


@app.command()
def fork(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name.")],
    changes: Changes = None,
    overrides: Overrides = None,
    step: Annotated[int | None, typer.Option(help="The step of the checkpoint; by default the newest.")] = None,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Go on from a checkpoint of a run with other keys, in a new run; the old one stays as it is."""
    from flows.commands.run import fork_of

    config, overrides = fork_of("", run, all_overrides(changes, overrides), runs_dir, step=step)
    _carry_out("baseline", config, overrides, runs_dir)


@app.command()
def init(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="A file, a folder, or a dataset of the hub: owner/name[:config][@split]."),
    ],
    validation: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Held-out data; by default found beside DATA, or set apart from it."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name of a checkpoint; by default a tiny random model.")
    ] = None,
    media_dir: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder that paths of images and videos start from.")
    ] = None,
    prompt_key: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with the question.")] = None,
    answer_key: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the answer; name the question's column if conversations end with the answer.",
        ),
    ] = None,
    image_key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with the images, or several (a,b); '' for none."),
    ] = None,
    video_key: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with the videos.")] = None,
    shared: Annotated[
        Literal["drop", "held-out", "train"] | None,
        typer.Option(help="Leave out training rows that share an image with held-out ones, or move rows to one side."),
    ] = None,
    options_key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the options of a multiple choice; '' for none.")
    ] = None,
    answer_pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Regular expression whose group is the answer; '' for the whole text."),
    ] = None,
    class_names: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Names of the classes whose numbers, from 0, are answers: a,b,c or a file of lines."
        ),
    ] = None,
    out: Out = Path("config.yaml"),
    force: Force = False,
) -> None:
    """Write a config for your own data, and show the prompts and rewards of its first rows."""
    from flows.commands.init import init_config
    from rl_core.data.column_guesses import NamedColumns
    from tasks.new_config.data_lookup import names_given
    from tasks.new_config.writing import InitOptions

    columns = NamedColumns(
        prompt_key=prompt_key,
        answer_key=answer_key,
        image_key=tuple(image_key.split(",")) if image_key and "," in image_key else image_key,
        video_key=video_key,
        options_key=options_key,
        answer_pattern=answer_pattern,
        class_names=names_given(class_names) if class_names else None,
    )
    options = InitOptions(validation=validation, model=model, columns=columns, media_dir=media_dir, shared=shared)
    raise typer.Exit(init_config(data, options, Console(), out=out, force=force))


@imports.command()
def easyr1(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG KEY=VALUE",
            help="The arguments of `python3 -m verl.trainer.main`: a YAML file, and keys to change.",
        ),
    ],
    out: Out = Path("config.yaml"),
    force: Force = False,
) -> None:
    """Write the equivalent of an EasyR1 configuration and list all differences (docs/migration.md)."""
    from sightline_tools.easyr1.command import write_easyr1_import

    write_easyr1_import(arguments, Console(), out=out, force=force)


@app.command()
def prepare(config: Target, changes: Changes = None, overrides: Overrides = None, runs_dir: RunsDir = RUNS_DIR) -> None:
    """Check everything and prepare model and data."""
    _carry_out("prepare", config, all_overrides(changes, overrides), runs_dir)


@app.command()
def train(config: Target, changes: Changes = None, overrides: Overrides = None, runs_dir: RunsDir = RUNS_DIR) -> None:
    """Train, after the stages that are needed for it."""
    _carry_out("train", config, all_overrides(changes, overrides), runs_dir)


app.command()(evaluate)


@app.command()
def merge(
    config: Target,
    changes: Changes = None,
    overrides: Overrides = None,
    push: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="Upload the model to a private repository on the hub.")
    ] = None,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Write the trained model in Hugging Face format and check it, after the stages that are needed for it."""
    _carry_out("merge", config, all_overrides(changes, overrides), runs_dir, push=push)


@app.command()
def report(config: Target, changes: Changes = None, overrides: Overrides = None, runs_dir: RunsDir = RUNS_DIR) -> None:
    """Print the results of a run; if there is no report yet, carry out what is missing and write it first."""
    from flows.commands.run import carry_out_report
    from flows.request import RunRequest

    request = RunRequest(config=config, overrides=all_overrides(changes, overrides), runs_dir=runs_dir)
    raise typer.Exit(carry_out_report(request, Console()))


def _print_gpu_table(asked: bool) -> None:
    """The answer to `plan --table`, which needs no config."""
    if asked:
        from sightline_tools.docs.gpu_table import gpu_table

        typer.echo(gpu_table())
        raise typer.Exit


@app.command()
def plan(
    config: Target,
    changes: Changes = None,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS_DIR,
    with_config: Annotated[bool, typer.Option("--config/--no-config", help="Print the resolved config too.")] = False,
    table: Annotated[
        bool,
        typer.Option(
            "--table",
            callback=_print_gpu_table,
            is_eager=True,
            help="Print how many GPUs models of 1.5B to 72B take, and end.",
        ),
    ] = False,
    gpu_gib: Annotated[
        float | None,
        typer.Option(min=1.0, help="Plan for GPUs with this memory in GiB, which this machine need not have."),
    ] = None,
    gpu_kind: Annotated[
        str | None,
        typer.Option("--gpu", help="Plan for GPUs of this kind, which this machine need not have: a100, h100, ..."),
    ] = None,
    try_reward: Annotated[
        bool,
        typer.Option("--try-reward", help="Call the reward with right and wrong responses to the first rows too."),
    ] = False,
) -> None:
    """Show what would run: stages and which are finished, batch sizes, memory, disk and step time, every problem."""
    from flows.commands.plan import planned_gpu, print_plan
    from flows.request import resolve_run

    resolved = resolve_run(config, all_overrides(changes, overrides), runs_dir=runs_dir)
    gpu = planned_gpu(gpu_kind, gpu_gib, resolved.config.cluster.device)
    raise typer.Exit(print_plan(resolved, Console(), gpu=gpu, with_config=with_config, tries_reward=try_reward))


@app.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name.")],
    validation: Annotated[bool, typer.Option("--validation", help="Show responses to held-out prompts.")] = False,
    step: Annotated[int | None, typer.Option(help="The step to show; by default the newest.")] = None,
    prompts: Annotated[int, typer.Option(min=1, help="How many prompts to show.")] = 3,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Show prompts, images, responses, rewards and advantages of a step, also while the run trains; with --validation
    the responses to held-out prompts after it."""
    from flows.commands.show import print_rollouts, print_validation
    from flows.request import find_run

    show_step = print_validation if validation else print_rollouts
    show_step(find_run(run, runs_dir), Console(), step=step, prompts=prompts)


@app.command()
def compare(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="Folders or names of runs, names of groups of seeds.")
    ] = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME=RUN,RUN", help="Runs to take as one group.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(help="The page to write, and its numbers as JSON; that of another comparison stays."),
    ] = Path("comparison.html"),
    items: Annotated[int, typer.Option(min=0, help="How many flipped items of each group to show.")] = 24,
    mlflow_uri: Annotated[
        str | None, typer.Option(help="MLflow's database or server for the page; by default the first run's.")
    ] = None,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Compare runs. Runs that differ only in their seed are one group, and the first group is the reference."""
    from flows.commands.tables import print_comparison
    from flows.comparing import asked_groups, compare_run_groups

    compared = asked_groups(runs or (), groups or (), runs_dir=runs_dir)
    page, file = compare_run_groups(compared, out=out, num_items=items, mlflow_uri=mlflow_uri)
    print_comparison(page, file, Console())


for operation in (reproduce, runs, clean, doctor, ui, server):
    app.command()(operation)


def _carry_out(
    flow: str,
    config: str | None,
    overrides: list[str],
    runs_dir: str,
    *,
    resume: str | None = None,
    fresh: bool = False,
    push: str | None = None,
    brief: bool = False,
    keep_training: bool = False,
    stretch: bool = False,
) -> None:
    from flows.commands.run import carry_out
    from flows.request import RunRequest

    request = RunRequest(
        config=config or "",
        overrides=overrides,
        resume=resume or "",
        fresh=fresh,
        runs_dir=runs_dir,
        push=push or "",
        keep_training=keep_training,
    )
    raise typer.Exit(carry_out(flow, request, Console(), brief=brief, stretch=stretch))


if __name__ == "__main__":
    main()
