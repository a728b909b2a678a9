"""The algorithms by name, each as what it changes of benchmarks/algorithms/counting.yaml (docs/algorithms.md)."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

CONFIG = Path(__file__).with_name("counting.yaml")

RECIPES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "grpo": (),
        "dr_grpo": ("algorithm.advantage.type=dr_grpo", "algorithm.loss_avg_mode=seq_sum_norm"),
        "dapo": (
            "algorithm.online_filtering={filter_key: accuracy}",
            "reward.function=null",
            "reward.mixture=[{function: count}, {function: overlong, "
            "kwargs: {max_response_length: 12, overlong_buffer_length: 3}}]",
        ),
        "gspo": (
            "algorithm.loss.type=gspo_token",
            "algorithm.loss_avg_mode=seq",
            "algorithm.loss.clip_ratio_low=3.0e-4",
            "algorithm.loss.clip_ratio_high=4.0e-4",
        ),
        "cispo": ("algorithm.loss.type=cispo", "algorithm.loss.clip_ratio_low=1", "algorithm.loss.clip_ratio_high=4"),
        "sapo": ("algorithm.loss.type=sapo",),
        "rloo": ("algorithm.advantage.type=rloo",),
        "reinforce++": (
            "algorithm.advantage.type=reinforce_plus_plus",
            "algorithm.kl={coef: 1.0e-3, penalty: kl, use_kl_loss: false}",
        ),
        "remax": ("algorithm.advantage.type=remax",),
        "ppo+critic": (
            "algorithm.advantage.type=gae",
            "algorithm.advantage.lam=0.95",
            "critic={global_batch_size: 8, micro_batch_size_per_device_for_update: 32, max_grad_norm: 0.5}",
            "critic.optim={lr: 1.0e-3, betas: [0.9, 0.99], lr_warmup_steps: 10, lr_scheduler_type: cosine}",
            "trainer.critic_warmup=3",
        ),
        "grpo+lora": ("model.lora={rank: 32, alpha: 64, exclude_modules: null}", "actor.optim.lr=2.0e-3"),
    }
)

SEEDS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType({"grpo": (1, 2, 3)})
"""The seeds that the slow test runs, where it is more than the first."""


def entries() -> list[tuple[str, int]]:
    """Every (recipe, seed) that the slow test runs."""
    return [(name, seed) for name in RECIPES for seed in SEEDS.get(name, (1,))]
