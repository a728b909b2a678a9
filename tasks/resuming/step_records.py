"""The records of training steps (metrics, rollouts, validations), and which of them are lost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_core.config.training import TrainerConfig
from rl_core.digests import FileRecord
from rl_core.records.metrics_log import readable_steps
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, altered_output


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """The first step with a lost record, and what is lost, in words."""

    step: int
    what: str


def step_files(run: RunDirectory, trainer: TrainerConfig, step: int) -> list[Path]:
    """The rollouts of a step, and the responses of a validation after it; the first step has the one before it."""
    asked = (0, 1) if step == 1 else (step,)
    return [run.rollouts(step), *(run.validation(at) for at in asked if trainer.validates_at(at))]


def records_of(epoch: StageManifest) -> dict[str, FileRecord]:
    """The files of a finished epoch other than checkpoints."""
    return {path: output for path, output in epoch.outputs.items() if not path.startswith("checkpoints/")}


def first_loss(
    run: RunDirectory, trainer: TrainerConfig, finished: Sequence[StageManifest], *, until: int
) -> Loss | None:
    """Find the first step, up to `until`, with a lost record; None when all records are there. Of steps in no finished
    epoch it can only be found out whether a file is missing.
    """
    if until < 1:
        return None  # nothing is lost before the first step, since the validation before training is repeated
    losses = [*_lost_metrics(run, trainer, finished, until), *_lost_files(run, trainer, finished, until)]
    return min(losses, key=lambda loss: loss.step, default=None)


def _lost_metrics(
    run: RunDirectory, trainer: TrainerConfig, finished: Sequence[StageManifest], until: int
) -> Iterator[Loss]:
    recorded = readable_steps(run.metrics)
    first = 0 if trainer.validates_at(0) else 1
    missing = next((step for step in range(first, until + 1) if step not in recorded), None)
    if missing is not None:
        yield Loss(step=max(1, missing), what=f"{run.metrics} has no readable line of step {missing}")
        return
    for epoch in finished:
        problem = _problem(run, epoch.outputs, run.metrics)
        if problem:
            yield Loss(step=int(epoch.result["first_step"]), what=problem)
            return


def _lost_files(
    run: RunDirectory, trainer: TrainerConfig, finished: Sequence[StageManifest], until: int
) -> Iterator[Loss]:
    known = {path: output for epoch in finished for path, output in epoch.outputs.items()}
    for step in range(1, until + 1):
        for file in step_files(run, trainer, step):
            problem = _problem(run, known, file)
            if problem:
                yield Loss(step=step, what=problem)
                return


def _problem(run: RunDirectory, known: Mapping[str, FileRecord], file: Path) -> str | None:
    """What is wrong with a file, as a sentence; None when it is as its manifest says, or is in no manifest."""
    name = file.relative_to(run.root).as_posix()
    if name in known:
        problem = altered_output(run.root, {name: known[name]})
        return problem and f"{run.root}/{problem}"
    return None if file.is_file() else f"{file} is missing"
