"""What one of several workers does in a step: the batch arithmetic of a cluster (docs/batch_sizes.md)."""

from dataclasses import dataclass

from rl_core.config.run import RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """How many of a number of things a worker gets. The numbers of two workers differ by one at most if the things are
    equally large; otherwise they are balanced by size.

    Attributes:
        least: The smaller number; 0 if there are fewer things than workers.
        most: The larger number.
    """

    least: int
    most: int

    @classmethod
    def of(cls, things: int, workers: int) -> "Share":
        """The shares of `things` dealt to `workers`."""
        return cls(least=things // workers, most=-(-things // workers))

    def times(self, each: int) -> "Share":
        """The shares if every thing is `each` others."""
        return Share(least=self.least * each, most=self.most * each)

    def __str__(self) -> str:
        """`3`, or `3 or 4`."""
        return f"{self.least}" if self.least == self.most else f"{self.least} or {self.most}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerShare:
    """The part of one worker.

    Attributes:
        workers: Number of workers, one on each device.
        engines: Number of generators: workers that generate / `cluster.tensor_parallel_size`.
        learners: Number of parts that an update is dealt into: workers that train / `cluster.sequence_parallel_size`.
        prompts: Prompts that a generator answers in a step; each has `rollout.n` responses.
        groups: Groups of an optimizer step that a part computes.
    """

    workers: int
    engines: int
    learners: int
    prompts: Share
    groups: Share

    @classmethod
    def of(cls, config: RunConfig) -> "WorkerShare":
        """The shares of a run's workers."""
        cluster = config.cluster
        engines = cluster.generators // cluster.tensor_parallel_size
        learners = cluster.trainers // cluster.sequence_parallel_size
        return cls(
            workers=cluster.ranks,
            engines=engines,
            learners=learners,
            prompts=Share.of(config.data.rollout_batch_size, engines),
            groups=Share.of(config.actor.global_batch_size, learners),
        )
