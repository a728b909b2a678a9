"""Makes the probe of a checkpoint, and checks that a loaded checkpoint reproduces it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rl_core.checkpoints.probe import Probe, build_probe, differences, plain_distribution, read_probe
from rl_core.config.run import RunConfig
from rl_core.config.tolerances import resume_tolerance
from rl_core.data.images import ImageStore
from rl_core.device import device_name
from rl_core.distributed.ranks import LONE, Ranks
from rl_core.models.packing import prompt_positions
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.training.log_prob_pass import compute_log_probs
from rl_core.types import Float32Array, Group, Int64Array, Prompt


class ProbeMismatch(RuntimeError):
    """A loaded checkpoint does not reproduce the log-probs of its probe: weights, code or images have changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prober:
    """Computes a policy's log-probs of some groups for a checkpoint, and compares a loaded policy with them. All ranks
    compute the same groups."""

    policy: PolicyModel
    images: ImageStore  # Every image of the data
    pixels: PixelCache
    token_budget: int  # Most tree tokens of a forward pass
    config: RunConfig
    ranks: Ranks = LONE

    def probe(self, groups: Sequence[Group]) -> Probe:
        """What `check` compares with later."""
        return build_probe(
            groups,
            self.log_probs(groups),
            dtype=self.config.model.dtype,
            device=self._device,
            topology=self.ranks.topology,
            encoded_image=self.images.encoded,
            video_positions=self._positions,
        )

    def check(self, folder: Path) -> None:
        """Raises ProbeMismatch if the policy's log-probs differ from the probe by more than `resume_tolerance`."""
        probe = read_probe(folder)
        found = [log_probs for group in self.log_probs(probe.groups) for log_probs in group]
        difference = np.concatenate(self.ranks.gather(differences(probe, found)))
        same_place = probe.device == self._device and probe.topology == self.ranks.topology
        bound = resume_tolerance(self.config, same_place=same_place)
        largest, mean = float(difference.max()), float(difference.mean())
        if not (largest <= bound.largest and mean <= bound.mean):
            raise ProbeMismatch(
                f"{folder.parent} was loaded, but the log-probs of its probe differ by up to {largest:.3g} (mean "
                f"{mean:.3g}), more than {bound.largest:.3g} (mean {bound.mean:.3g}), which follows from "
                f"merge.probe_tolerance: it was saved by other code or for other images; continue from another "
                f"checkpoint, or start a new run with --fresh. It was saved on {probe.device} "
                f"({probe.topology}) and loaded on {self._device} ({self.ranks.topology}); raise "
                f"merge.probe_tolerance only if that explains the difference"
            )

    def log_probs(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] log_softmax(logits) of the sampled tokens: no temperature, no ban."""
        with plain_distribution(self.policy):
            return compute_log_probs(
                self.policy,
                groups,
                pixels=self.pixels,
                temperature=1.0,
                token_budget=self.token_budget,
                ranks=self.ranks,
            )

    @property
    def _device(self) -> str:
        return device_name(self.policy.model.device)

    def _positions(self, prompt: Prompt) -> Int64Array:
        images, videos = self.pixels.get(prompt.image_uids), self.pixels.get_videos(prompt.videos)
        return prompt_positions(prompt, images, videos, self.policy.config)
