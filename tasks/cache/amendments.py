"""The changes of its recipe with which a training went on: in its own folder (`sightline run --keep-training`,
`--stretch`) or in another one (`sightline fork`). They are in the run's amendments.json, so that each number of the run
is known to have been made before or after a change, and no other run takes over what only this run's history makes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter

from rl_core.digests import digest_of
from rl_core.files import atomic_write_json, read_json
from rl_core.planning.epoch_spans import START, DataPlace
from rl_core.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Amendment:
    """One change.

    Attributes:
        step: The last step that was trained without it.
        what: What changed, as a person knows it: "rewards/count.py", "actor.optim.lr".
        begun: Digest of the epoch that was being trained, as it was asked for before.
        kept: [stage] -> digest of each stage before that step that the training goes on from as it is.
        place: Where the training was in the rows and batches that it had until then; None in a record of earlier
            software.
        forked_from: The run in which the steps up to this one were trained; None for this run.
    """

    step: int
    what: Sequence[str]
    begun: str
    kept: Mapping[str, str]
    forked_from: str | None = None
    place: DataPlace | None = None

    def __str__(self) -> str:
        where = f"forked from {self.forked_from} after" if self.forked_from else "after"
        return f"{where} step {self.step}: {', '.join(self.what) or 'nothing'} changed"


Amendments = Sequence[Amendment]

_RECORD: Final = TypeAdapter(tuple[Amendment, ...])


def read_amendments(run: RunDirectory) -> Amendments:
    """The changes of a run's training, in their order. Raises ValueError where the file of them is damaged."""
    try:
        return _RECORD.validate_python(read_json(run.amendments))
    except FileNotFoundError:
        return ()
    except ValueError as error:
        raise ValueError(
            f"{run.amendments} is damaged, so what {run.name} was trained with is not known: {error}"
        ) from None


def write_amendments(run: RunDirectory, amendments: Amendments) -> None:
    """Write them, whole or not at all."""
    atomic_write_json(run.amendments, _RECORD.dump_python(tuple(amendments), mode="json"))


def data_place(amendments: Amendments) -> DataPlace:
    """The place since which a training has the rows and the batch size that it has."""
    return (amendments[-1].place if amendments else None) or START


def kept_digest(amendments: Amendments, stage: str) -> str | None:
    """The digest of a stage that stands from before the last change; None for every other stage."""
    return amendments[-1].kept.get(stage) if amendments else None


def amended_digest(digest: str, amendments: Amendments) -> str:
    """The digest of a training that these changes were made in."""
    history = [[each.step, each.begun, dict(each.kept)] for each in amendments]
    return digest_of([digest, history]) if history else digest
