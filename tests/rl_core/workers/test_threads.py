"""Runs are equal to the bit with the same number of threads, on however many cores; `cluster.threads` fixes it."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from rl_core.distributed.place import RankPlace
from tests.rl_core.distributed.spmd import run_ranks
from tests.rl_core.small_run import prepare, small_config
from tests.rl_core.workers.rank_life import Rank, responses

pytestmark = pytest.mark.timeout(600)  # three workers start, one after the other


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return prepare(small_config(), tmp_path_factory.mktemp("threads") / "run").root


@dataclass(frozen=True)
class Training:
    """What a short training left.

    Attributes:
        threads: The number with which torch computes.
        device: What the worker says that it computes on.
        numbers: Digest of all responses with their log-probs, and of the weights after two updates.
    """

    threads: int
    device: str
    numbers: str


def train(place: RankPlace, root: Path, cores: set[int], variable: str, overrides: list[str]) -> Training:
    """Generate, learn, generate and learn on these cores, with this OMP_NUM_THREADS."""
    os.sched_setaffinity(0, cores)
    os.environ["OMP_NUM_THREADS"] = variable
    rank = Rank.open(place, root, overrides)
    numbers = hashlib.sha256()
    for step in (1, 2):
        groups = rank.rollouts(step=step)
        numbers.update(repr(responses(groups)).encode())
        rank.learned(groups)
    for weight in rank.weights().values():
        numbers.update(weight.numpy().tobytes())
    device = rank.worker.usage().workers[0].device
    found = Training(threads=torch.get_num_threads(), device=device, numbers=numbers.hexdigest())
    rank.worker.close()
    return found


@pytest.mark.slow
def test_a_run_of_a_machine_with_more_cores_is_repeated_with_its_number_of_threads(root, tmp_path):
    """Whatever OMP_NUM_THREADS says. Without the key, that number is taken even where it is above that of the cores.
    Whether it gives another run depends on the processor: numbers of so small a model may be equal all the same."""
    cores = os.sched_getaffinity(0)
    two, more = ["cluster.threads=2"], len(cores) + 2
    many = run_ranks(train, tmp_path, root, cores, "1", two, size=1)[0]
    one = run_ranks(train, tmp_path, root, {min(cores)}, f"{more}", two, size=1)[0]
    other = run_ranks(train, tmp_path, root, cores, f"{more}", [], size=1)[0]
    assert (many.threads, many.device) == (2, "CPU with 2 thread(s)")
    assert one == many
    assert (other.threads, other.device) == (more, f"CPU with {more} thread(s)")
