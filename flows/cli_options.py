"""Arguments that several commands share."""

from typing import Annotated

import typer

Target = Annotated[str, typer.Argument(metavar="CONFIG", help="A config file, or the folder of a run to continue.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key: --set actor.optim.lr=1e-6.")
]
RunsDir = Annotated[str, typer.Option("--runs-dir", help="Where runs lie.")]
