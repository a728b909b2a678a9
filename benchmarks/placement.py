"""Where responses are generated, on two workers with one thread each: `python -m benchmarks.placement`.

Three arrangements train the quickstart's model from the same rows and cold-started weights, with the same batch, on the
same two processor cores: both workers generate and train in turn (`colocated`); one generates and the other trains
(`split`), which take turns on-policy; and the same one step off-policy (`rollout.staleness: 1`), where they work at the
same time. They run in turn, every run in a process of its own. What `sightline plan` would forecast of the split ones
after the colocated steps of a round is compared with what was measured. Writes a file with `--output`, and with
`--picture` what each worker did when.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from benchmarks.speed.comparison import PHASE_FIRST
from benchmarks.speed.report import machine_facts
from benchmarks.speed.side import CONFIG, SideResult
from benchmarks.versus_trl import pin_to_cores, prepared_work, run_module
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.planning.gpu import UNLISTED
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.step_time import StepTime
from tasks.planning.step_times import Forecaster, mean_lengths, measured_step, median_time

ARRANGEMENTS: Final[Mapping[str, Sequence[str]]] = {
    "colocated": (),
    "split": ("cluster.placement=split",),
    "split, one step off": ("cluster.placement=split", "rollout.staleness=1"),
}
"""[name] -> settings of a training that is compared."""

PARTS: Final = ("generate", "update", "sync", "other", "step")
"""What is forecast of a step, in seconds."""

Round = Mapping[str, SideResult]
"""[name] -> its training in a round."""

_SHOWN_STEPS: Final = 4
_COLOURS: Final = {"generate": "#3b76c4", "update": "#d98032", "sync": "#8a8f98", "save": "#8a8f98", "load": "#8a8f98"}


def main() -> None:
    arguments = parse_arguments()
    pin_to_cores(2)
    facts = machine_facts("benchmarks.placement", sys.argv[1:])
    work = prepared_work(arguments.work, 2)
    rounds: list[Round] = []
    for number, seed in enumerate(arguments.seeds):
        rounds.append({name: train(work, name, seed, arguments.steps) for name in order(number)})
        speeds = [f"{name} {speed(rounds[-1][name], arguments.steps):.0f}" for name in ARRANGEMENTS]
        print(f"seed {seed}: {', '.join(speeds)} samples a second", flush=True)
        print(forecasts(rounds[-1]), flush=True)
    text = json.dumps(
        facts | summary(rounds, arguments.steps) | {"step_time": forecast_summary(rounds)},
        indent=1,
    )
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")
    if arguments.picture:
        draw(rounds[0], arguments.picture)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--work", type=Path, default=Path("runs/versus-trl"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--picture", type=Path)
    return parser.parse_args()


def order(number: int) -> list[str]:
    """The trainings of a round; backwards in every second one."""
    return [*ARRANGEMENTS][::-1] if number % 2 else [*ARRANGEMENTS]


def train(work: Path, name: str, seed: int, steps: int) -> SideResult:
    """One training, in a process of its own with one thread a worker."""
    out = work / f"placement-{[*ARRANGEMENTS].index(name)}-{seed}.json"
    options = {"--work": work, "--seed": seed, "--steps": steps, "--threads": 1, "--out": out}
    options |= {"--workers": 2, "--sharding": "none"}
    words = [str(word) for option in options.items() for word in option]
    words += ["--set", *ARRANGEMENTS[name]]
    run_module(sys.executable, "sightline_side", words, threads=1, log=out.with_suffix(".log"))
    return SideResult.read(out)


def config_of(name: str) -> RunConfig:
    """The config of a training."""
    return load_config(CONFIG, ["cluster.devices=2", "cluster.sharding=none", *ARRANGEMENTS[name]])


def measured(side: SideResult, config: RunConfig) -> StepTime:
    """The median step from `PHASE_FIRST` on, when everything has started."""
    steps = (measured_step(timing, config) for timing in side.timings if timing["step"] >= PHASE_FIRST)
    return median_time([step for step in steps if step is not None])


def forecasts(one: Round) -> dict[str, Any]:
    """For each arrangement but the first, the forecast from the steps of the first one, the measured seconds, and the
    ratio of the two for the whole step."""
    first, *others = ARRANGEMENTS
    config, lengths = config_of(first), mean_lengths(one[first].metrics)
    sizes = model_sizes(config.model.source)
    assert sizes is not None, "the quickstart's model can be built"
    found = (config, measured(one[first], config))
    forecaster = Forecaster(sizes=sizes, gpu=None, card=UNLISTED, lengths=lengths, measured=found)
    pairs = {name: (forecaster.step_time(config_of(name)), measured(one[name], config_of(name))) for name in others}
    return {name: compared(*pair) for name, pair in pairs.items()}


def compared(forecast: StepTime, found: StepTime) -> dict[str, Any]:
    """Both, part by part, and the ratio of the whole."""
    sides = {"forecast": forecast, "measured": found}
    parts = {side: {part: round(getattr(time, part), 3) for part in PARTS} for side, time in sides.items()}
    return parts | {"ratio": round(forecast.step / found.step, 3)}


def forecast_summary(rounds: Sequence[Round]) -> dict[str, Any]:
    """The forecasts of each round, and the median of their ratios."""
    found = [forecasts(one) for one in rounds]
    return {
        "forecast_over_measured": {name: round(median(one[name]["ratio"] for one in found), 3) for name in found[0]},
        "rounds": found,
    }


def speed(side: SideResult, steps: int) -> float:
    """Samples a second from step `PHASE_FIRST` on, when everything has started."""
    return side.samples_per_second(PHASE_FIRST, steps)


def busy_shares(side: SideResult) -> list[float]:
    """[worker] -> the share of the time from step `PHASE_FIRST` on in which it worked."""
    steps = side.spans[PHASE_FIRST - 1 :]
    spans = [[span for step in steps for span in step[worker]] for worker in range(len(steps[0]))]
    begin = min(span[1] for of_worker in spans for span in of_worker)
    end = max(span[2] for of_worker in spans for span in of_worker)
    return [sum(stop - start for _, start, stop in of_worker) / (end - begin) for of_worker in spans]


def reward_after(side: SideResult, seconds: float) -> float:
    """The mean reward of the last three steps that had ended `seconds` after the start of step `PHASE_FIRST`."""
    start = side.step_ends[PHASE_FIRST - 1]
    done = sum(end - start <= seconds for end in side.step_ends[1:])
    return mean(side.rewards[max(0, done - 3) : done])


def summary(rounds: Sequence[Round], steps: int) -> dict[str, Any]:
    """For each arrangement, over the rounds: its speed over the first one's, the busy share of each worker, and the
    rewards after equal steps and after the time that the fastest arrangement took."""
    first, *_ = ARRANGEMENTS
    shortest = [min(one[name].seconds(PHASE_FIRST, steps) for name in ARRANGEMENTS) for one in rounds]
    found = {}
    for name in ARRANGEMENTS:
        ratios = [speed(one[name], steps) / speed(one[first], steps) for one in rounds]
        shares = [busy_shares(one[name]) for one in rounds]
        found[name] = {
            "ratios": [round(ratio, 3) for ratio in ratios],
            "median_ratio": round(median(ratios), 3),
            "busy_shares": [round(mean(of_worker), 2) for of_worker in zip(*shares, strict=True)],
            "rewards_after_equal_steps": [round(mean(one[name].rewards[-3:]), 4) for one in rounds],
            "rewards_after_equal_time": [
                round(reward_after(one[name], seconds), 4) for one, seconds in zip(rounds, shortest, strict=True)
            ],
        }
    return {"packages": rounds[0][first].packages, "steps": steps, "arrangements": found}


def draw(one: Round, path: Path) -> None:
    """What each worker did when, in the last steps of each arrangement."""
    figure = Figure(figsize=(9.0, 4.5), layout="constrained")
    axes = figure.subplots(len(ARRANGEMENTS), 1, sharex=True)
    for axis, name in zip(axes, ARRANGEMENTS, strict=True):
        steps = one[name].spans[-_SHOWN_STEPS:]
        begin = min(span[1] for step in steps for of_worker in step for span in of_worker)
        for worker in range(len(steps[0])):
            for kind, start, stop in [span for step in steps for span in step[worker]]:
                axis.broken_barh([(start - begin, stop - start)], (0.6 - worker, 0.8), color=_COLOURS[kind])
        axis.set_yticks([1.0, 0.0], ["worker 0", "worker 1"])
        axis.set_title(f"{name}: the last {_SHOWN_STEPS} steps", loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    labels = {"generate": "generates", "update": "trains", "sync": "weights"}
    handles = [Rectangle((0, 0), 1, 1, color=_COLOURS[kind]) for kind in labels]
    axes[0].legend(handles, labels.values(), ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes[-1].set_xlabel("seconds")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
