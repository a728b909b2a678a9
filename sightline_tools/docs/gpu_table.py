"""How many GPUs a model takes, and how many by EasyR1's published table. `python -m sightline_tools.docs.gpu_table
docs/memory.md` writes the table of that page, and `sightline plan --table` prints it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rl_core.config.loading import validate_config
from rl_core.config.run import RunConfig
from rl_core.families.registry import PUBLISHED
from rl_core.planning.gpu import Gpu
from rl_core.planning.memory import USABLE, memory_forecast
from rl_core.planning.memory_rules import FEWEST_SEQUENCES
from rl_core.planning.model_sizes import sizes_of_config
from rl_core.planning.settings import resolve_auto

MODELS: Final = {
    "1.5B": "Qwen/Qwen2.5-1.5B-Instruct",
    "3B": "Qwen/Qwen2.5-VL-3B-Instruct",
    "7B": "Qwen/Qwen2.5-VL-7B-Instruct",
    "32B": "Qwen/Qwen2.5-VL-32B-Instruct",
    "72B": "Qwen/Qwen2.5-VL-72B-Instruct",
}
"""[column of EasyR1's table] -> the model that is forecast for it."""

CARD_GIB: Final = {12: 11.9, 24: 23.7, 32: 31.8, 40: 39.6, 80: 79.6}
"""[GB by name] -> GiB as the driver has them: RTX 3060, RTX 4090, RTX 5090, A100 of 40 GB, H100."""

MOST_GPUS: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """A row of the table: its name, Sightline's settings for it, and EasyR1's (number of GPUs, GB each) by model."""

    name: str
    optimizer: str
    lora: bool
    easyr1: tuple[tuple[int, int], ...]


METHODS: Final = (
    Method(
        name="all weights, AMP",
        optimizer="adamw",
        lora=False,
        easyr1=((2, 24), (4, 40), (8, 40), (16, 80), (32, 80)),
    ),
    Method(
        name="all weights, pure bfloat16",
        optimizer="adamw_bf16",
        lora=False,
        easyr1=((1, 24), (1, 40), (4, 40), (8, 80), (16, 80)),
    ),
    Method(name="LoRA, AMP", optimizer="adamw", lora=True, easyr1=((1, 12), (1, 24), (2, 32), (2, 80), (4, 80))),
)
"""EasyR1's numbers are estimates of its README, "Hardware Requirements"."""

_BEGIN, _END = "<!-- gpu table: written by make docs -->", "<!-- end of the gpu table -->"


def gpu_table() -> str:
    """The table in Markdown: in each cell Sightline's number of GPUs, what it offloads, and EasyR1's number of the same
    GPUs."""
    lines = [f"| | {' | '.join(MODELS)} |", "|---" * (1 + len(MODELS)) + "|"]
    for method in METHODS:
        cells = (_cell(method, model, *theirs) for model, theirs in zip(MODELS, method.easyr1, strict=True))
        lines.append(f"| {method.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(method: Method, model: str, number: int, card: int) -> str:
    found = gpus_needed(method, model, card)
    if found is None:
        return f"more than {MOST_GPUS} x {card} GB; EasyR1 {number}"
    gpus, resolved = found
    offload = resolved.trainer.offloads
    kept = "" if offload == "none" else f" (offload {offload})"
    return f"**{gpus} x {card} GB**{kept}; EasyR1 {number}"


def gpus_needed(method: Method, model: str, card: int) -> tuple[int, RunConfig] | None:
    """The smallest power of two of GPUs on which a model can be trained, with room for `FEWEST_SEQUENCES` in the
    generator's cache as `plan` wants it, and the settings there; None beyond `MOST_GPUS`.

    Several GPUs share weights, gradients, optimizer and reference (`cluster.sharding: full`), and the generator with
    its cache (`cluster.tensor_parallel_size`), even where the model's heads cannot be shared by so many.
    """
    sizes = sizes_of_config(PUBLISHED[MODELS[model]])
    assert sizes is not None, "a known model can be built"
    gib = CARD_GIB[card]
    gpus = 1
    while gpus <= MOST_GPUS:
        resolved = resolve_auto(_config(method, model, gpus), sizes, Gpu(memory_gib=gib)).config
        forecast = memory_forecast(resolved, sizes, gpu_gib=gib)
        if forecast.peak_gib <= USABLE * gib and forecast.cached_sequences >= FEWEST_SEQUENCES:
            return gpus, resolved
        gpus *= 2
    return None


def _config(method: Method, model: str, gpus: int) -> RunConfig:
    """The lengths, batches and KL of EasyR1's examples, and logits in small chunks; everything else is Sightline's
    default."""
    rows = {"type": "hub", "name": "hiyouga/geometry3k@train"}
    return validate_config(
        {
            "experiment": "gpu-table",
            "data": {
                "train": rows,
                "validation": rows,
                "max_prompt_length": 2048,
                "rollout_batch_size": 512,
            },
            "model": {
                "source": {"type": "pretrained", "path": MODELS[model]},
                "lora": {} if method.lora else None,
                "log_prob_chunk_tokens": 512,
            },
            "reward": {"function": "math"},
            "cluster": {"devices": gpus, "tensor_parallel_size": gpus},
            "rollout": {"n": 5, "max_response_length": 2048},
            "algorithm": {"kl": {"coef": 0.01}},
            "actor": {"global_batch_size": 128, "optim": {"strategy": method.optimizer}},
        },
        "the table of GPUs",
    )


def with_table(page: str) -> str:
    """A page with the table between its marks. Raises ValueError where the page lacks one of them."""
    before, has_begin, rest = page.partition(_BEGIN)
    _, has_end, after = rest.partition(_END)
    if not (has_begin and has_end):
        raise ValueError(f"the page has no {_BEGIN!r} followed by {_END!r}: put them where the table is to be")
    return f"{before}{_BEGIN}\n\n{gpu_table()}\n\n{_END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
