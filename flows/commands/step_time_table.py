"""The forecast of step time, as `sightline plan` prints it."""

from typing import Final

from rich.table import Table

from rl_core.config.run import RunConfig
from tasks.planning.step_times import Forecaster

SHARES: Final = (0.25, 0.5, 1.0)
"""Mean lengths of responses, as shares of the longest, for which the seconds of a step are shown too."""


def step_time_table(config: RunConfig, forecaster: Forecaster, words: str) -> Table:
    """A row for each placement: the seconds of a step and of its parts, the fastest one marked, and those of a step
    with responses of other lengths. The title says for what the forecast is, and what it assumes."""
    title = f"Step time in seconds, a forecast for {words}; last, with responses of 25, 50 and 100 % of the longest"
    table = Table(title=title, title_justify="left")
    table.add_column("placement")
    for column in ("generate", "update", "sync", "other", "step", *(f"{share:.0%}" for share in SHARES)):
        table.add_column(column, justify="right")
    rows = [(placed, forecaster.step_time(placed)) for placed in forecaster.placements(config)]
    fastest = min(time.step for _, time in rows)
    for placed, time in rows:
        others = [share * config.rollout.max_response_length for share in SHARES]
        steps = (forecaster.step_time(placed, response=response).step for response in others)
        seconds = (time.generate, time.update, time.sync, time.other, time.step, *steps)
        mark = ", fastest" if time.step == fastest and len(rows) > 1 else ""
        table.add_row(_placement_words(placed) + mark, *map(_shown, seconds))
    return table


def _placement_words(config: RunConfig) -> str:
    """`colocated`, `split, 2 of 8 generate`, or the same with `, one step off`."""
    cluster = config.cluster
    if not cluster.is_split:
        return "colocated"
    split = f"split, {cluster.generating_devices} of {cluster.devices} generate"
    return f"{split}, one step off" if config.rollout.staleness else split


def _shown(seconds: float) -> str:
    return f"{seconds:,.{0 if seconds >= 100 else 1 if seconds >= 10 else 2}f}"
