"""The forecast of step time, as `sightline plan` prints it."""

from rich.table import Table
from rich.text import Text

from rl_core.planning.placement_times import PlacementTime, fastest
from tasks.planning.step_times import StepTimes


def step_time_table(times: StepTimes) -> Table:
    """A row for each placement, with the seconds of a step and of its parts; the fastest one is marked."""
    table = Table(title="Step time in seconds, a forecast", title_justify="left", caption=f"Rates: {times.told}.")
    table.caption_justify = "left"
    table.add_column("placement")
    for column in ("generate", "update", "sync", "other", "step"):
        table.add_column(column, justify="right")
    table.add_column("")
    best = fastest(times.placements)
    for placement in times.placements:
        is_best = placement is best and len(times.placements) > 1
        table.add_row(*_cells(placement), Text("fastest" if is_best else "", style="green"))
    return table


def _cells(placement: PlacementTime) -> list[str]:
    time = placement.time
    at_once = " (at the same time)" if time.is_overlapped else ""
    seconds = (time.generate, time.update, time.sync, time.compare + time.other, time.step)
    return [f"{placement.name}{at_once}", *(f"{value:,.2f}" for value in seconds)]
