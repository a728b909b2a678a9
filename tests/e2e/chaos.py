"""Ends runs at many moments, starts them again, and compares everything they leave with an unbroken run.

    python -m tests.e2e.chaos --n 30 --seed 1 --output result.json

Moments: `n` runs (a share of them in some profiles) are ended once or several times, at moments drawn from the seed
(over the unbroken run's wall time, or a little after a step of it), by SIGKILL to the process group or by SIGTERM; and
two runs of the first profile die in the replacement of every file that they write, one right before and one right after
it, and are started again each time. The lengths of epochs and run, the checkpoints that are saved and kept, and the
validations are drawn too; every few runs share them, and an unbroken run of theirs. `--profile` names a profile to run;
without it all are.

Each time a run is started again it is held against what lay in its folder (tests/e2e/continuing.py): it goes on after
its newest intact checkpoint, does no more than `trainer.save_freq` steps again, deletes no checkpoint on the way, and
says so. What came out is added to the runs in the file `--output`. Exits 1 when any run differs or did anything else;
the folders of such a run and of its unbroken one are kept in `--evidence`.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rl_core.records.metrics_log import readable_steps
from tasks.cache.software import code_version
from tests.e2e.continuing import Continuation, Watched
from tests.e2e.processes import prefect_server
from tests.e2e.runs import (
    QUICKSTART,
    QUICKSTART_IN_SHORT,
    REAL_MODEL,
    REAL_MODEL_IN_SHORT,
    REPOSITORY,
    SMALL,
    command,
    environment,
    failed_rewards,
    fingerprint,
    run_arguments,
    sightline,
    the_run,
)
from tests.results import differences
from tests.rl_core.busy import busy_cores

KILLER = str(REPOSITORY / "tests" / "e2e" / "killer.py")
TIMEOUT = 1800


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """A kind of run.

    Attributes:
        name: In the committed results.
        config: What is run.
        overrides: Gives changes of the config, which decide which checkpoints there are and when.
        share: Of the runs that are ended at drawn moments.
        runs_each: How many of them have the same overrides, and so one unbroken run.
        most_kills: How often a run is ended at the most.
        other_work: Processes that keep cores busy all the time.
        in_each_replacement: Runs die in the replacement of every file too.
    """

    name: str
    config: Path
    overrides: Callable[[random.Random], list[str]]
    share: float = 1.0
    runs_each: int = 5
    most_kills: int = 2
    other_work: int = 0
    in_each_replacement: bool = False


def geometry(
    generator: random.Random,
    *,
    rows_a_step: int,
    lengths: Sequence[tuple[int, int]],
    val_freqs: Sequence[int],
    most_save_freq: int,
) -> list[str]:
    """Epochs, checkpoints and validations of a run; `lengths` are steps an epoch and epochs."""
    steps, epochs = generator.choice(lengths)
    val_freq = generator.choice(val_freqs)
    best = val_freq > 0 and steps % val_freq == 0
    return [
        f"data.train.size={rows_a_step * steps}",
        f"trainer.total_epochs={epochs}",
        f"trainer.save_freq={generator.randint(1, most_save_freq)}",
        f"trainer.save_limit={generator.randint(1, 3)}",
        f"trainer.val_freq={val_freq}",
        f"merge.checkpoint={generator.choice(['best', 'last']) if best else 'last'}",
    ]


def small_geometry(generator: random.Random) -> list[str]:
    """Of the small config, whose step takes 4 rows."""
    lengths = [(1, 6), (2, 4), (3, 3), (4, 2), (5, 2)]
    return geometry(generator, rows_a_step=4, lengths=lengths, val_freqs=[-1, 1, 2, 3], most_save_freq=4)


def quickstart_geometry(generator: random.Random) -> list[str]:
    """Of the quickstart, whose step takes 64 rows: a few steps of its size."""
    lengths = [(1, 6), (2, 3), (3, 2)]
    drawn = geometry(generator, rows_a_step=64, lengths=lengths, val_freqs=[-1, 1, 2], most_save_freq=3)
    return [*QUICKSTART_IN_SHORT, *drawn]


def two_worker_geometry(generator: random.Random) -> list[str]:
    """Of the quickstart, on two workers that train one model."""
    sharding = generator.choice(["full", "none"])
    return [*quickstart_geometry(generator), f"cluster={{devices: 2, sharding: {sharding}, device: cpu}}"]


def one_step_off_geometry(generator: random.Random) -> list[str]:
    """Of the small config, with a pending batch in each checkpoint."""
    return [*small_geometry(generator), "rollout.staleness=1"]


def split_geometry(generator: random.Random) -> list[str]:
    """As one step off, on a worker that generates and one that trains."""
    return [*one_step_off_geometry(generator), "cluster={devices: 2, placement: split, device: cpu}"]


def real_model_geometry(generator: random.Random) -> list[str]:
    """Of the real model: all weights, adapters, or two workers."""
    kinds = ("cluster.devices=1", "model.lora={rank: 8}", "cluster={devices: 2, device: cpu}")
    drawn = [f"trainer.save_freq={generator.randint(1, 2)}", f"trainer.val_freq={generator.choice([-1, 1])}"]
    return [*REAL_MODEL_IN_SHORT, *drawn, generator.choice(kinds)]


PROFILES = (
    Profile(name="small", config=SMALL, overrides=small_geometry, in_each_replacement=True),
    Profile(
        name="quickstart",
        config=QUICKSTART,
        overrides=quickstart_geometry,
        share=0.2,
        runs_each=3,
        most_kills=4,
        other_work=2,
    ),
    Profile(name="two-workers", config=QUICKSTART, overrides=two_worker_geometry, share=0.1, runs_each=2, most_kills=3),
    Profile(name="one-step-off", config=SMALL, overrides=one_step_off_geometry, share=0.5),
    Profile(name="split", config=SMALL, overrides=split_geometry, share=0.2),
    Profile(name="real-model", config=REAL_MODEL, overrides=real_model_geometry, share=0.2, runs_each=2),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unbroken:
    """The reference run: what it was asked for, its wall time, its steps, rewards that failed in it, and what it
    leaves."""

    profile: Profile
    overrides: Sequence[str]
    seconds: float
    steps: int
    failed_rewards: int
    results: Mapping[str, str]

    def arguments(self, folder: Path) -> list[str]:
        """Of `sightline run`, for a run of the same in a folder of its own."""
        return run_arguments(folder, self.profile.config, *self.overrides)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """When a run is ended, and by which signal: `seconds` after it has recorded `step`, 0 for its start."""

    signum: signal.Signals
    seconds: float
    step: int = 0

    def __str__(self) -> str:
        return f"{self.signum.name} {self.seconds:.3g} s after {f'step {self.step}' if self.step else 'its start'}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A run that was ended.

    Attributes:
        folder: Name of its folder.
        profile: Its profile.
        overrides: Its changes of the config.
        moment: When it was ended, and by what.
        kills: How often it was ended; 0 when it had come to its end before.
        continued: How it went on each time.
        failed_rewards: Rewards that failed in it, and in the unbroken run.
        different: Its results that differ.
    """

    folder: str
    profile: str
    overrides: Sequence[str]
    moment: str
    kills: int
    continued: list[Continuation]
    failed_rewards: tuple[int, int]
    different: list[str]

    @property
    def is_bad(self) -> bool:
        return bool(self.different) or any(continuation.faults for continuation in self.continued)


def unbroken_run(folder: Path, profile: Profile, overrides: Sequence[str]) -> Unbroken:
    """Run a profile to its end."""
    folder.mkdir()
    start = time.monotonic()
    sightline(*run_arguments(folder, profile.config, *overrides), home=folder, timeout=TIMEOUT)
    seconds = time.monotonic() - start
    run = the_run(folder / "runs")
    steps = max(readable_steps(run.metrics))
    return Unbroken(
        profile=profile,
        overrides=overrides,
        seconds=seconds,
        steps=steps,
        failed_rewards=failed_rewards(run),
        results=fingerprint(run),
    )


def ended_at(folder: Path, moments: Sequence[Moment], reference: Unbroken) -> Outcome:
    """Start a run, end it at each moment, and start it again as a person would."""
    folder.mkdir()
    watched = Watched(folder / "runs")
    arguments = command(*reference.arguments(folder))
    kills = 0
    for number, moment in enumerate([*moments, None]):
        output = folder / f"output-{number}.txt"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                arguments,
                env=environment(folder),
                cwd=REPOSITORY,
                start_new_session=True,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        if _comes_to_its_end(process, moment, watched):
            assert process.returncode == 0, output.read_text()
            watched.note(output.read_text(), came_to_its_end=True)
            break
        kills += 1
        _end(process, moment.signum, watched)
        watched.note(output.read_text(), came_to_its_end=False)
    return _outcome(folder, ", ".join(map(str, moments)), kills, watched, reference)


def _comes_to_its_end(process: subprocess.Popen[bytes], moment: Moment | None, watched: Watched) -> bool:
    def has_ended() -> bool:
        return process.poll() is not None

    if moment is None:
        assert watched.until(has_ended, TIMEOUT), f"the run takes longer than {TIMEOUT} s"
        return True
    if moment.step:
        watched.until(lambda: has_ended() or watched.has_recorded(moment.step), TIMEOUT)
    return watched.until(has_ended, moment.seconds)


def _end(process: subprocess.Popen[bytes], signum: signal.Signals, watched: Watched) -> None:
    """SIGTERM goes to the run itself, which saves its step; SIGKILL to all that it has started."""
    if signum == signal.SIGTERM:
        process.terminate()
        if watched.until(lambda: process.poll() is not None, TIMEOUT):
            return
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def killed_in_each_replacement(folder: Path, moment: str, reference: Unbroken) -> Outcome:
    """Start a run until it no longer dies: it does so once `moment` ("before" or "after") each file's replacement."""
    folder.mkdir()
    deaths, output = folder / "deaths", folder / "output.txt"
    watched = Watched(folder / "runs")
    arguments = command(*reference.arguments(folder), launcher=(KILLER, moment, f"{folder}/runs/"))
    with prefect_server(folder, folder / "server.txt") as (_, variables):
        while (status := _call(arguments, variables | {"DEATHS_FILE": str(deaths)}, output, watched)) != 0:
            assert status == -signal.SIGKILL, output.read_text()
            watched.note(output.read_text(), came_to_its_end=False)
            print(f"  died {moment} {deaths.read_text().splitlines()[-1]}", flush=True)
    watched.note(output.read_text(), came_to_its_end=True)
    kills = len(deaths.read_text().splitlines())
    return _outcome(folder, f"{moment} each replacement", kills, watched, reference)


def _call(arguments: list[str], variables: Mapping[str, str], output: Path, watched: Watched) -> int:
    with output.open("wb") as stream:  # a pipe would stay open for as long as a child that outlives the run
        process = subprocess.Popen(arguments, env=variables, cwd=REPOSITORY, stdout=stream, stderr=subprocess.STDOUT)
    assert watched.until(lambda: process.poll() is not None, TIMEOUT), output.read_text()
    return process.returncode


def _outcome(folder: Path, moment: str, kills: int, watched: Watched, reference: Unbroken) -> Outcome:
    run = the_run(folder / "runs")
    return Outcome(
        folder=folder.name,
        profile=reference.profile.name,
        overrides=reference.overrides,
        moment=moment,
        kills=kills,
        continued=watched.continued,
        failed_rewards=(failed_rewards(run), reference.failed_rewards),
        different=differences(reference.results, fingerprint(run)),
    )


def chaos(root: Path, profiles: Sequence[Profile], *, n: int, seed: int) -> Iterator[Outcome]:
    """Every run that is ended."""
    for profile in profiles:
        with busy_cores(profile.other_work):
            if profile.in_each_replacement:
                yield from _in_each_replacement(root, profile)
            yield from _at_drawn_moments(root, profile, runs=round(n * profile.share), seed=seed)


def _in_each_replacement(root: Path, profile: Profile) -> Iterator[Outcome]:
    reference = unbroken_run(root / f"{profile.name}-unbroken", profile, [])
    for moment in ("before", "after"):
        yield killed_in_each_replacement(root / f"{profile.name}-{moment}", moment, reference)


def _at_drawn_moments(root: Path, profile: Profile, *, runs: int, seed: int) -> Iterator[Outcome]:
    generator = random.Random(f"{seed} {profile.name}")
    for number in range(runs):
        if number % profile.runs_each == 0:
            overrides = profile.overrides(generator)
            print(f"{profile.name}: {' '.join(overrides)}", flush=True)
            reference = unbroken_run(root / f"{profile.name}-{number}-unbroken", profile, overrides)
        yield ended_at(root / f"{profile.name}-{number}", drawn_moments(generator, reference), reference)


def drawn_moments(generator: random.Random, reference: Unbroken) -> list[Moment]:
    """Every third over the unbroken run's wall time, from one start to the next end, the others within two seconds
    after a step."""
    return [_drawn_moment(generator, reference) for _ in range(generator.randint(1, reference.profile.most_kills))]


def _drawn_moment(generator: random.Random, reference: Unbroken) -> Moment:
    signum = generator.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
    if generator.random() < 1 / 3:
        return Moment(signum=signum, seconds=generator.uniform(0.0, reference.seconds))
    return Moment(signum=signum, seconds=generator.uniform(0.0, 2.0), step=generator.randint(1, reference.steps))


def keep_evidence(root: Path, outcome: Outcome, folder: Path) -> None:
    """Copy the folders of a run that differs, and of every unbroken one so far, where they outlive this process."""
    for found in (root / outcome.folder, *root.glob(f"{outcome.profile}*-unbroken")):
        if not (folder / found.name).exists():
            shutil.copytree(found, folder / found.name, symlinks=True)
    print(f"kept in {folder}", flush=True)


def add_result(path: Path, summary: Mapping[str, object]) -> None:
    """Append what one call of this script found to those in the file."""
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    path.write_text(json.dumps({"runs": [*runs, summary]}, indent=1) + "\n")


def summary_of(outcomes: Sequence[Outcome], command_line: str) -> dict[str, object]:
    """What is committed of a call of this script."""
    continued = [continuation for outcome in outcomes for continuation in outcome.continued]
    return {
        "command": command_line,
        "code": str(code_version()),
        "cores": os.cpu_count(),
        "kills": sum(outcome.kills for outcome in outcomes),
        "different": sum(bool(outcome.different) for outcome in outcomes),
        "steps_done_again": sum(continuation.again for continuation in continued),
        "faults": sum(len(continuation.faults) for continuation in continued),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--profile", action="append", choices=[profile.name for profile in PROFILES])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--evidence", type=Path, default=Path(tempfile.gettempdir()) / "sightline-chaos")
    arguments = parser.parse_args()
    chosen = [profile for profile in PROFILES if not arguments.profile or profile.name in arguments.profile]
    words = [f"--n {arguments.n} --seed {arguments.seed}", *(f"--profile {profile.name}" for profile in chosen)]
    print(f"seed {arguments.seed}", flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory() as root:
        for outcome in chaos(Path(root), chosen, n=arguments.n, seed=arguments.seed):
            print(outcome, flush=True)
            outcomes.append(outcome)
            if outcome.is_bad:
                keep_evidence(Path(root), outcome, arguments.evidence / str(arguments.seed))
    summary = summary_of(outcomes, f"python -m tests.e2e.chaos {' '.join(words)}")
    if arguments.output:
        add_result(arguments.output, summary)
    bad = sum(outcome.is_bad for outcome in outcomes)
    print(
        f"{summary['kills']} kills, {summary['steps_done_again']} steps done again; "
        f"{summary['different']} of {len(outcomes)} runs differ, {summary['faults']} went on otherwise than promised"
    )
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
