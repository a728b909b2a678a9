"""Families that vLLM computes in bfloat16 alone on a CPU: it agrees with the trainer, before and after new weights."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from rl_core.families import registry
from rl_core.models.named_weights import named_hf_weights
from rl_core.models.packing import TreeInput, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel, load_policy
from rl_core.rollout.vllm_engine import VllmEngine
from rl_core.types import Rollout, RolloutKey
from tests.rl_core.matrix import MATRIX
from tests.rl_core.models.builders import model_config
from tests.rl_core.rollout.engines import (
    MAX_NUM_SEQS,
    MAX_PROMPT_LENGTH,
    MAX_RESPONSE_LENGTH,
    DrawnImages,
    TinyPolicy,
    assert_same_rollouts,
    build_folder,
    by_key,
    make_requests,
    start_vllm,
    training_sampling,
)

FAMILIES = [name for name in MATRIX if "float32" not in registry.FAMILIES[name].engine.cpu_dtypes]


@dataclass(frozen=True)
class Pair:
    """The trainer's policy, and the engine."""

    tiny: TinyPolicy
    policy: PolicyModel
    engine: VllmEngine

    def sync(self) -> None:
        self.engine.load_weights(named_hf_weights(self.policy.model), policy_version=1)

    def generate(self) -> dict[RolloutKey, Rollout]:
        return by_key(self.engine.generate(make_requests(self.tiny.prompts(), 6), training_sampling()))

    def gaps(self, rollouts: dict[RolloutKey, Rollout]) -> dict[str, float]:
        """[uid of a prompt] -> mean difference of the log-probs of the generator and of the trainer."""
        found = {}
        for prompt in self.tiny.prompts():
            own = [rollout for key, rollout in rollouts.items() if key[0] == prompt.uid]
            tree = TreeInput(prompt=prompt, responses=[rollout.response_ids for rollout in own])
            packed = pack_trees(
                [tree],
                pixels=PixelCache(self.tiny.folder, DrawnImages()),
                model_config=self.policy.config,
                device=self.policy.device,
            )
            with torch.no_grad():
                log_probs = self.policy(packed, temperature=1.0).log_probs.numpy()
            found[prompt.uid] = float(np.abs(log_probs - np.concatenate([one.log_probs for one in own])).mean())
        return found


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, tmp_path_factory) -> Iterator[Pair]:
    folder = build_folder(tmp_path_factory.mktemp("model"), request.param, num_layers=5)
    policy = load_policy(folder, model_config(folder, dtype="bfloat16"))
    move_every_weight(policy, scale=0.05, seed=0)
    tiny = TinyPolicy(family=request.param, folder=folder, model=policy.model)
    engine = start_vllm(tiny, dtype="bfloat16")
    yield Pair(tiny, policy, engine)
    engine.close()


def move_every_weight(policy: PolicyModel, *, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_((scale * torch.randn(weight.shape, generator=generator)).to(weight.dtype))


def test_generator_and_trainer_agree_before_and_after_two_updates(pair):
    """In the mean to 0.03 nats, for prompts without, with one and with two images. Equal weights give equal rollouts to
    the bit."""
    for update in range(3):
        pair.sync()
        rollouts = pair.generate()
        assert max(pair.gaps(rollouts).values()) < 0.03
        spread = np.concatenate([rollout.log_probs for rollout in rollouts.values()]).std()
        assert spread > 0.3, "the control: the tokens are far from equally likely"
        if update == 0:
            assert_same_rollouts(pair.generate(), rollouts)
        move_every_weight(pair.policy, scale=0.05, seed=update + 1)
        assert min(pair.gaps(rollouts).values()) > 0.06, "the control: the update matters"


def test_the_cache_has_room_for_every_running_sequence_and_no_more(pair):
    """Layers with a state have one block for each sequence, in groups of as many layers as attend."""
    cache = pair.engine._engine.vllm_config.cache_config
    kinds = pair.policy.config.get_text_config().layer_types
    groups = math.ceil(kinds.count("linear_attention") / kinds.count("full_attention"))
    of_keys = math.ceil((MAX_PROMPT_LENGTH + MAX_RESPONSE_LENGTH) / cache.block_size)
    assert cache.num_gpu_blocks == 1 + MAX_NUM_SEQS * (groups + of_keys)
