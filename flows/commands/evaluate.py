"""The command `sightline evaluate`."""

import json
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from flows.commands.options import Changes, Overrides, RunsDir, all_overrides
from rl_core.run_directory import RUNS_DIR

_ONLY_CONFIGS = {"overrides", "reward"}
_ONLY_MODELS = {"items", "media_dir", "limit", "dtype", "seed", "family"}
_ONLY_PROTOCOLS = {"prompt", "samples", "out", "against"}
_KEYS = {"prompt": "data.prompt_template", "samples": "evaluation.n", "limit": "evaluation.limit", "seed": "seed"}
"""[option] -> key of a config that says the same."""


def evaluate(
    context: typer.Context,
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG|ROWS", help="A config file, a run's folder or name; with --model also rows: DATA of `init`."
        ),
    ] = None,
    changes: Changes = None,
    overrides: Overrides = None,
    protocols: Annotated[
        list[str] | None,
        typer.Option("--protocol", metavar="NAME@VERSION", help="A protocol to measure by; may be repeated."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Ask this model: a folder, a run's or checkpoint's folder, or owner/name\\[@revision]."),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:FAMILY", help="The family of --model, if it is one of your own; by default that of its run."
        ),
    ] = None,
    outputs: Annotated[Path | None, typer.Option(help="Score these saved responses; needs no model.")] = None,
    items: Annotated[
        list[str] | None, typer.Option(metavar="PROTOCOL=FILE", help="Ask these items, not those on the hub.")
    ] = None,
    media_dir: Annotated[
        Path | None, typer.Option(help="Folder that relative image paths of --items or ROWS start from.")
    ] = None,
    prompt: Annotated[Path | None, typer.Option(help="Ask with this Jinja file, such as the published text.")] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Number of responses to each item, for pass@k and majority@k.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask only the first items.")] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None, typer.Option(help="Number format; by default the format of the model.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the sampled responses; 1 by default.")] = None,
    reward: Annotated[
        str | None, typer.Option(help="Grade by this reward, a built-in or path/to/file.py:function.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; below evaluations/ by default.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="Folder of earlier results to compare with, item by item.")
    ] = None,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Evaluate the base and the trained model of a CONFIG; any --model on its held-out rows, or on other ROWS; or any
    model, or saved responses, by published protocols."""
    if not (protocols or model or outputs):
        if config is None:
            raise ValueError("give a CONFIG; or --protocol NAME@VERSION with --model or --outputs")
        _refuse(
            context,
            _ONLY_MODELS | _ONLY_PROTOCOLS | {"reward"},
            "a CONFIG: its section `evaluation` says how; change it by --set",
        )
        from flows.commands.run import carry_out
        from flows.request import RunRequest

        request = RunRequest(config=config, overrides=all_overrides(changes, overrides), runs_dir=runs_dir)
        raise typer.Exit(carry_out("evaluate", request, Console()))
    from flows.commands.protocols import ProtocolRequest, config_to_ask, evaluate_any_model, score_outputs
    from flows.request import path_of

    model = model and str(path_of(model, runs_dir))
    if config is not None and model is not None and not (protocols or outputs):
        _refuse(context, {"items"}, "a CONFIG or ROWS, which are the items")
        given = {"prompt": prompt and str(prompt.absolute()), "samples": samples, "limit": limit, "seed": seed}
        changed = [f"{_KEYS[name]}={json.dumps(value)}" for name, value in given.items() if value is not None]
        changed += all_overrides(changes, overrides)
        with tempfile.TemporaryDirectory() as scratch:
            ours = config_to_ask(
                path_of(config, runs_dir),
                changed,
                Console(),
                reward=reward,
                media_dir=media_dir,
                model=model,
                folder=Path(scratch),
            )
            asked = ProtocolRequest(config=ours, out=out, against=against)
            raise typer.Exit(evaluate_any_model(model, dtype, ours.seed, asked, Console(), family=family))
    if config is not None or (model is None) == (outputs is None):
        raise ValueError("a protocol measures one thing: --model NAME, or --outputs FILE")
    _refuse(context, _ONLY_CONFIGS, "a protocol, which asks any model the same")
    asked = ProtocolRequest(
        protocols=protocols or (),
        prompt=prompt,
        samples=samples,
        items=items or (),
        media_dir=media_dir,
        limit=limit,
        out=out,
        against=against,
    )
    if outputs is not None:
        _refuse(context, _ONLY_MODELS, "--outputs: the responses are there")
        raise typer.Exit(score_outputs(outputs, asked, Console()))
    assert model is not None, "one of the two was given"
    chosen = 1 if seed is None else seed
    raise typer.Exit(evaluate_any_model(model, dtype, chosen, asked, Console(), family=family))


def _refuse(context: typer.Context, names: Collection[str], with_what: str) -> None:
    """Raise ValueError when one of these options was given, since it would have no effect."""
    options = {parameter.name: parameter.opts[-1] for parameter in context.command.params}
    for name in sorted(names):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"{options[name]} has no effect with {with_what}")
