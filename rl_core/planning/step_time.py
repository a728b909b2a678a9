"""A forecast of the seconds of a training step, from what the memory and the arithmetic of a card allow (roofline;
Williams et al. 2009) at the efficiencies that cards have shown (docs/cluster.md, "Which placement")."""

from dataclasses import dataclass
from typing import Final, Self

from rl_core.config.run import RunConfig
from rl_core.config.training import UpdateConfig
from rl_core.planning.batches import WorkerShare, optimizer_steps_per_step
from rl_core.planning.engine_memory import engine_part, kv_bytes_per_token
from rl_core.planning.gpu import Card
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.training_state import BYTES, part_of, rl_training_state, shards
from rl_core.planning.update_memory import PATCHES_A_TOKEN

ARITHMETIC: Final = 0.3
"""Share of the arithmetic that a pass reaches, the vision tower's and what is computed again included: measured on an
H200 with a model of 3B, 0.31 with long responses and 0.27 with short ones (benchmarks/results/device_h200.json)."""

BANDWIDTH: Final = 0.7
"""Share of the memory bandwidth that a decode step reaches. An estimate: 60 to 85 % is usual."""

MOVES: Final = 13
"""Times that an optimizer step, with the clipping of gradients, moves everything that it keeps through the memory: as
many as give the seconds of the H200."""

LINK: Final = 0.6
"""Share of the link's rate that a collective reaches. An estimate."""

DECODE_OVERHEAD: Final = 0.008
"""Seconds of a decode step in which vLLM schedules and samples: what is left of the seconds of an H100 with 80
sequences (benchmarks/results/device_h100.json), the preparation of their images included."""

LAYER_SYNC: Final = 0.006
"""Seconds in which the tensors of a linear layer go to the generator through vLLM's loaders. An estimate."""

IMAGE_SHARE: Final = 0.75
"""The part of a prompt's tokens that are taken to be those of images, where the model sees."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Mean tokens of prompts and responses, the longest response of a step, the part of a prompt that is images, and
    how these are known."""

    prompt: float
    response: float
    longest: float
    image_share: float = IMAGE_SHARE
    source: str = ""

    @classmethod
    def assumed(cls, config: RunConfig) -> Self:
        """Those of the section `planning`, else half of the longest; some response is as long as it may be."""
        planned, longest = config.planning, float(config.longest_response)
        prompt = planned.mean_prompt_length or config.data.max_prompt_length / 2
        response = planned.mean_response_length or longest / 2
        source = "planning" if planned.mean_response_length else "half of the longest"
        return cls(prompt=prompt, response=response, longest=max(response, longest), source=source)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTime:
    """The seconds of a step: generating the rollout batch; all passes of the trainer with its optimizer steps; giving
    the generators the weights; and rewards, records and the loop itself, in which no device works. `is_overlapped`: the
    next batch is generated during the update (one step off-policy)."""

    generate: float
    update: float
    sync: float
    other: float = 0.0
    is_overlapped: bool

    @property
    def step(self) -> float:
        """The whole step."""
        work = max(self.generate, self.update) if self.is_overlapped else self.generate + self.update
        return self.sync + work + self.other


@dataclass(frozen=True, kw_only=True, slots=True)
class CardTime:
    """The seconds that are assumed of a kind of GPU, for a config in which every `auto` is resolved. Not counted are
    attention's own arithmetic, offloading, rewards, the network between machines, and what group filtering draws beyond
    a batch."""

    config: RunConfig
    sizes: ModelSizes
    card: Card
    lengths: Lengths

    @property
    def n(self) -> int:
        """Responses to each prompt, a greedy one included."""
        return self.config.rollout.n + int(self.config.algorithm.advantage.uses_greedy)

    def step(self, in_flight: int) -> StepTime:
        """A step whose generators decode at most so many sequences at a time."""
        config, cluster, algorithm = self.config, self.config.cluster, self.config.algorithm
        batch, share = config.data.rollout_batch_size, WorkerShare.of(config)
        forwards = sum((algorithm.old_log_probs == "recompute", algorithm.kl is not None, config.critic is not None))
        update = forwards * self.passes(-(-batch // share.learners), has_gradient=False)
        owners: list[UpdateConfig] = [config.actor, *([config.critic] if config.critic else [])]
        for owner in owners:
            one = self.passes(-(-owner.global_batch_size // share.learners)) + self.optimizer()
            update += optimizer_steps_per_step(config, owner) * one
        weights = self.sizes.parameters * BYTES[config.model.dtype]
        sent = weights / (LINK * self.card.link) if cluster.is_split or shards(cluster) > 1 else 0.0
        return StepTime(
            generate=self.generate(share.prompts, in_flight),
            update=update,
            sync=LAYER_SYNC * len(self.sizes.linear_layers) + 2 * weights / (BANDWIDTH * self.card.bandwidth) + sent,
            is_overlapped=cluster.is_split and config.rollout.staleness > 0,
        )

    def generate(self, prompts: int, in_flight: int) -> float:
        """A generator's responses to some prompts.

        A sequence is in flight for as many decode steps as it has tokens. Those that wait for a place begin at the rate
        at which others end, and the one that begins last is taken to be the longest. A decode step reads the weights
        once for all sequences, and the keys and values of each, while it computes.
        """
        part, lengths = engine_part(self.config.cluster, self.sizes), self.lengths
        language, sequences = part.parameters - part.vision_parameters, prompts * self.n
        tokens = sequences * lengths.response
        steps = max(0, sequences - in_flight) * lengths.response / in_flight + lengths.longest
        context = lengths.prompt + lengths.response / 2  # half of a response is there on average
        read = steps * language * BYTES[self.config.model.dtype]
        read += tokens * context * kv_bytes_per_token(self.config, part)
        prefill = prompts * (2 * language * lengths.prompt + self._tower(part))
        flops = ARITHMETIC * self.card.flops
        decode = max(read / (BANDWIDTH * self.card.bandwidth), 2 * language * tokens / flops)
        return prefill / flops + decode + DECODE_OVERHEAD * steps

    def passes(self, groups: float, *, has_gradient: bool = True) -> float:
        """A learner's passes over some groups, each a tree of its prompt and n responses.

        For each parameter and token 2 operations forward; backward 2 for the activations, and 2 for the weights where
        they are trained; 2 where the forward pass is repeated (Korthikanti et al. 2022).
        """
        model, lengths = self.config.model, self.lengths
        language = tower = 1
        if has_gradient:
            language = (3 if model.lora is None else 2) + int(model.recomputes_activations)
            tower = language if model.lora is None and not model.freeze_vision_tower else 1
        tree = (lengths.prompt + self.n * lengths.response) / self.config.cluster.sequence_parallel_size
        computed = language * 2 * (self.sizes.parameters - self.sizes.vision_parameters) * tree
        return groups * (computed + tower * self._tower(self.sizes)) / (ARITHMETIC * self.card.flops)

    def optimizer(self) -> float:
        """An optimizer step without its passes, with the sum of several trainers' gradients: float32 numbers, which a
        ring sends twice (Patarasuk and Yuan 2009)."""
        cluster, model, optim = self.config.cluster, self.config.model, self.config.actor.optim
        own = rl_training_state(model, optim, part_of(self.sizes, shards(cluster)), sharded=cluster.trainers > 1)
        whole = rl_training_state(model, optim, self.sizes, sharded=True)
        sent = 2 * whole.gradients / (LINK * self.card.link) if cluster.trainers > 1 else 0.0
        return MOVES * (own.weights + own.optimizer + own.gradients) / (BANDWIDTH * self.card.bandwidth) + sent

    def _tower(self, part: ModelSizes) -> float:
        """Operations of the vision tower's forward pass over the images of a prompt."""
        return 2 * part.vision_parameters * PATCHES_A_TOKEN * self.lengths.image_share * self.lengths.prompt
