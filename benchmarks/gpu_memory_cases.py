"""The cases of `python -m benchmarks.gpu_memory`, and what is forecast for them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.planning.memory import CONTEXT, DRIVER, FRAGMENTS, memory_forecast
from rl_core.planning.memory_rows import ALWAYS, BACKWARD, MemoryRow, Moment, total_gib
from rl_core.planning.model_sizes import model_sizes

BASE: Final = Path(__file__).parents[1] / "configs" / "baselines" / "qwen2_5_vl_3b_geo3k_grpo.yaml"
"""The configuration that every case changes."""

GPU_GIB: Final = 79.6
"""Memory of the GPU that a forecast is asked for: an H100. No row that is compared depends on it."""

PROMPT: Final = 1024
RESPONSES: Final = 7
LENGTHS: Final = (1024, 20)
"""Responses with which whole groups fill the micro-batches of four longest sequences: one with long responses, seven
with short ones."""

PHASES: Final = (
    "at rest",
    "pass of the reference",
    "forward and backward passes",
    "optimizer step",
    "weight sync",
)
"""What is measured of torch's allocator."""

LORA: Final = 'model.lora={rank: 64, alpha: 64, target_modules: all-linear, exclude_modules: ".*visual.*"}'


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What one process measures.

    Attributes:
        model: The model's name on the hub.
        workers: Workers that share its weights.
        trained: "all weights" or "LoRA".
        recomputed: Whether activations are computed again (`model.gradient_checkpointing`).
        response: Tokens of each response.
        offload: `trainer.offload`.
        sequences: Longest sequences of a micro-batch of an update; a pass of the reference has four times as many.
    """

    model: str
    workers: int = 1
    trained: str = "all weights"
    recomputed: bool = True
    response: int = 1024
    offload: str = "none"
    sequences: int = 4

    @property
    def overrides(self) -> list[str]:
        """What the case changes in the configuration."""
        return [
            f"model.source={{type: pretrained, path: {self.model}}}",
            f"data.max_prompt_length={PROMPT}",
            "rollout.max_response_length=1024",
            f"rollout.n={RESPONSES}",
            f"actor.micro_batch_size_per_device_for_update={self.sequences}",
            f"actor.micro_batch_size_per_device_for_experience={4 * self.sequences}",
            f"model.gradient_checkpointing={str(self.recomputed).lower()}",
            "model.attention=varlen",
            f"trainer.offload={self.offload}",
            f"cluster.devices={self.workers}",
            "rollout.gpu_memory_utilization=0.5",
            *([LORA] if self.trained == "LoRA" else []),
        ]

    def config(self) -> RunConfig:
        """The whole configuration."""
        return load_config(BASE, self.overrides)


CHOSEN: Final = Case(model="Qwen/Qwen2.5-VL-3B-Instruct", offload="optimizer", sequences=16, response=20)
"""What `auto` chooses for 3B with all weights on an H100, with short responses."""


def case_of(row: Mapping[str, Any]) -> Case:
    """The case of a measured row."""
    return Case(**{field.name: row[field.name] for field in fields(Case)})


def cases() -> Iterator[Case]:
    """Every model with all weights and with LoRA, activations kept and computed again, long and short responses; and
    offloading where it changes what is on the GPU."""
    models = (
        ("Qwen/Qwen2.5-VL-3B-Instruct", 1),
        ("Qwen/Qwen3-VL-4B-Instruct", 1),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 8),
        ("Qwen/Qwen2.5-VL-32B-Instruct", 16),
    )
    for model, workers in models:
        for trained in ("all weights", "LoRA"):
            for recomputed in (True, False):
                for response in LENGTHS:
                    yield Case(model=model, workers=workers, trained=trained, recomputed=recomputed, response=response)
        for offload in ("optimizer", "all"):
            yield Case(model=model, workers=workers, offload=offload)
    yield CHOSEN


def forecast(case: Case) -> Mapping[str, float]:
    """[what is measured] -> GiB that are forecast of torch's allocator, and of the machine's pinned memory."""
    config = case.config()
    sizes = model_sizes(config.model.source)
    assert sizes is not None, "a known model can be built"
    found = memory_forecast(config, sizes, gpu_gib=GPU_GIB, response=case.response)
    rows = [row for row in found.rows if _is_the_trainers(row)]

    def at(*moments: Moment) -> float:
        return max(total_gib(rows, moment) for moment in moments)

    return {
        "at rest": sum(row.gib for row in rows if row.moments == ALWAYS),
        "pass of the reference": at("pass of the reference"),
        "forward and backward passes": at(*BACKWARD),
        "optimizer step": at("optimizer step"),
        "weight sync": at("weight sync"),
        "pinned": sum(row.gib for row in found.host_rows if row.name in _pinned(case)),
    }


def _is_the_trainers(row: MemoryRow) -> bool:
    """Whether a row consists of tensors of the trainer, which its allocator counts."""
    return not row.name.startswith("engine") and row.name not in (DRIVER, CONTEXT, FRAGMENTS)


def _pinned(case: Case) -> tuple[str, ...]:
    """The rows of the machine's memory that are pinned: FSDP2 moves the shards of a reference itself, and pins none."""
    return ("optimizer state", "reference weights") if case.workers == 1 else ("optimizer state",)
