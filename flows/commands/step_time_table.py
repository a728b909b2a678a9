"""The forecast of step time, as `sightline plan` prints it."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.printing import say
from rl_core.planning.placement_times import PlacementTime, fastest
from tasks.planning.step_times import SHARES, StepTimes


def print_step_times(times: StepTimes, console: Console) -> None:
    """Print the forecast and where its rates come from, or why there is none."""
    if times.placements:
        console.print(step_time_table(times))
        say(console, _by_length(times))
        say(console, f"the rates of the devices: {times.told}")
    else:
        say(console, f"step time: {times.told}")


def step_time_table(times: StepTimes) -> Table:
    """A row for each placement, with the seconds of a step and of its parts; the fastest one is marked."""
    placements, is_alone = times.placements, len(times.placements) == 1
    table = Table(title=f"Step time in seconds, a forecast for {times.lengths}", title_justify="left")
    table.add_column("placement")
    for column in ("generate", "update", "sync", "other", "step"):
        table.add_column(column, justify="right")
    best = fastest(placements)
    for placement in placements:
        mark = Text("fastest" if placement is best else "", style="green")
        table.add_row(*_cells(placement), *([] if is_alone else [mark]))
    return table


def _by_length(times: StepTimes) -> str:
    """The seconds of a step for responses of other lengths."""
    shares = " / ".join(f"{100 * share:.0f}" for share in SHARES)
    tokens = " / ".join(f"{mean:,.0f}" for mean in times.by_length)
    steps = " / ".join(f"{step:,.0f}" if step >= 10 else f"{step:.2f}" for step in times.by_length.values())
    return f"with responses of {tokens} tokens ({shares} % of the longest), a step takes {steps} seconds"


def _cells(placement: PlacementTime) -> list[str]:
    time = placement.time
    at_once = " (at the same time)" if time.is_overlapped else ""
    seconds = (time.generate, time.update, time.sync, time.compare + time.other, time.step)
    return [f"{placement.name}{at_once}", *(f"{value:,.2f}" for value in seconds)]
