"""The forecast of step time, as `sightline plan` prints it."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.printing import say
from rl_core.planning.placement_times import PlacementTime, fastest
from tasks.planning.step_times import StepTimes


def print_step_times(times: StepTimes, console: Console) -> None:
    """Print the forecast and where its rates come from, or why there is none."""
    if times.placements:
        console.print(step_time_table(times.placements))
        say(console, f"the rates of the devices: {times.told}")
    else:
        say(console, f"step time: {times.told}")


def step_time_table(placements: Sequence[PlacementTime]) -> Table:
    """A row for each placement, with the seconds of a step and of its parts; the fastest one is marked."""
    table = Table(title="Step time in seconds, a forecast", title_justify="left")
    table.add_column("placement")
    for column in ("generate", "update", "sync", "other", "step"):
        table.add_column(column, justify="right")
    table.add_column("")
    best = fastest(placements)
    for placement in placements:
        is_best = placement is best and len(placements) > 1
        table.add_row(*_cells(placement), Text("fastest" if is_best else "", style="green"))
    return table


def _cells(placement: PlacementTime) -> list[str]:
    time = placement.time
    at_once = " (at the same time)" if time.is_overlapped else ""
    seconds = (time.generate, time.update, time.sync, time.compare + time.other, time.step)
    return [f"{placement.name}{at_once}", *(f"{value:,.2f}" for value in seconds)]
