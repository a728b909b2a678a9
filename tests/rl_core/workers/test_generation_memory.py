"""What generation takes is noted while the engine has it: on a GPU a sleeping engine has given its memory back."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from rl_core.config.run import RunConfig
from rl_core.run_directory import RunDirectory
from rl_core.types import GenerationRequest, Rollout, Sampling
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.local_worker import LocalWorker


class LargeSleeper:
    """A RolloutEngine that takes 256 MiB while it goes to sleep, which is no part of the phase of generation."""

    policy_version: int | None = None
    has_weights = True
    cached_tokens = 0

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], *, policy_version: int) -> None:
        self.policy_version = policy_version

    def load_adapters(self, adapters: Iterable[tuple[str, torch.Tensor]], *, policy_version: int) -> None:
        self.policy_version = policy_version

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        yield from ()

    def sleep(self) -> None:
        np.ones(2**28, dtype=np.uint8)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


class Worker(LocalWorker):
    def _start_engine(self) -> LargeSleeper:
        return LargeSleeper()


def test_the_peak_of_generation_is_noted_before_the_engine_sleeps(
    config: RunConfig, prepared_run: RunDirectory
) -> None:
    initial = prepared_run.initial_model
    folders = WorkerFolders(model=initial, base=initial, data=prepared_run.data, images_per_prompt=1)
    worker = Worker(Opening(config=config, folders=folders, total_optimizer_steps=1))
    worker.usage()  # forgets the peaks of loading
    worker.wake()
    worker.sleep()
    peaks = worker.usage().together
    worker.close()
    assert 0.2 < peaks["update_peak_gib"] - peaks["generate_peak_gib"] < 0.3
