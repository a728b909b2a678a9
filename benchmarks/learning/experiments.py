"""What `python -m benchmarks.learning` trains, by name (docs/benchmarks.md, "What is learned")."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rl_core.families.family import Family
from rl_core.families.registry import FAMILIES

COUNTING: Final = Path(__file__).with_name("counting.yaml")
CONFIGS: Final = Path(__file__).parents[2] / "configs"
QUICKSTART: Final = CONFIGS / "quickstart.yaml"
CORRIDOR: Final = CONFIGS / "corridor" / "corridor.yaml"
ZOOM: Final = CONFIGS / "zoom" / "zoom.yaml"
WORD_PROBLEMS: Final = CONFIGS / "word_problems" / "smollm2.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """A way of training.

    Attributes:
        config: Its configuration.
        overrides: What it changes of that.
        threads: Threads of each worker.
    """

    config: Path = QUICKSTART
    overrides: tuple[str, ...] = ()
    threads: int = 2


_ONE_OFF: Final = "rollout.staleness=1"

_QUICKSTART: Final[Mapping[str, Experiment]] = {
    "quickstart": Experiment(),
    "quickstart-one-thread": Experiment(threads=1),
    "quickstart-four-threads": Experiment(threads=4),
    "two-workers": Experiment(overrides=("cluster={devices: 2, sharding: none}",), threads=1),
    "one-step-off": Experiment(overrides=(_ONE_OFF,), threads=1),
    "one-step-off-uncorrected": Experiment(overrides=(_ONE_OFF, "algorithm.old_log_probs=engine"), threads=1),
    "split-one-step-off": Experiment(overrides=(_ONE_OFF, "cluster={devices: 2, placement: split}"), threads=1),
}

_LONG_PROMPTS: Final = {"llava_onevision": 128, "smolvlm": 256, "gemma4": 256, "minicpmv4_6": 256}
"""Families that make more tokens of a picture than the quickstart allows a prompt."""


def _of_family(family: Family) -> Experiment:
    """The quickstart with a tiny model of a family."""
    overrides = [f"model.source.family={family.name}"]
    if (dtype := family.engine.cpu_dtypes[0]) != "float32":
        overrides += [f"model.dtype={dtype}", "rollout.max_log_prob_gap=null"]
    if family.name in _LONG_PROMPTS:
        overrides.append(f"data.max_prompt_length={_LONG_PROMPTS[family.name]}")
    return Experiment(overrides=tuple(overrides), threads=1)


_WITHOUT_ZOOM: Final = ("tools=null", "cold_start.source.kwargs.with_tool=false")

_TOOLS: Final[Mapping[str, Experiment]] = {
    "zoom": Experiment(config=ZOOM, threads=1),
    "corridor": Experiment(config=CORRIDOR, threads=1),
    "zoom-without-tool": Experiment(config=ZOOM, overrides=_WITHOUT_ZOOM, threads=1),
}

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
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
"""The algorithms (docs/algorithms.md), each as what it changes of counting.yaml."""

EXPERIMENTS: Final[Mapping[str, Experiment]] = MappingProxyType(
    {
        **_QUICKSTART,
        **_TOOLS,
        **{f"quickstart-{one.name}": _of_family(one) for one in FAMILIES.values() if one.vision is not None},
        "word-problems": Experiment(config=WORD_PROBLEMS),
        **{name: Experiment(config=COUNTING, overrides=overrides, threads=1) for name, overrides in ALGORITHMS.items()},
    }
)
