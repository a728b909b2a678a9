"""Whether the layers that `model.lora` names exist and can get adapters."""

import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Final

from rl_core.config.model import LoraConfig
from rl_core.planning.known_models import KNOWN_MODELS
from rl_core.planning.model_sizes import ModelSizes, sizes_of_config
from rl_core.planning.training_state import is_adapted
from rl_core.problem import Problem
from rl_core.wording import shortened

SECONDS: Final = 3.0
"""Time limit of matching a pattern. It takes milliseconds, unless the pattern backtracks without end."""

VLLM_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks for which vLLM reserves memory; an adapter may have a lower one (vllm.config.lora.MaxLoRARanks)."""

_MATCH = "import json, re, sys; p, ts = json.load(sys.stdin); r = re.compile(p); [r.fullmatch(t) for t in ts]"
_SHOWN = 3
_VISION = ".visual."
_KNOWN_PATTERNS = ("all-linear", LoraConfig.model_fields["exclude_modules"].default)
_FIX = "set it to all-linear, or name some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj"


def pattern_problems(lora: LoraConfig, sizes: ModelSizes | None) -> list[Problem]:
    """Patterns whose comparison with the names of the model's layers does not end; the names of another model are taken
    where this one is not known yet. No other rule may match such a pattern."""
    patterns = {
        key: pattern
        for key, pattern in (("target_modules", lora.target_modules), ("exclude_modules", lora.exclude_modules))
        if isinstance(pattern, str) and pattern not in _KNOWN_PATTERNS
    }
    if not patterns:
        return []
    any_model = sizes or sizes_of_config(next(iter(KNOWN_MODELS.values())))
    names = frozenset() if any_model is None else any_model.other_modules.union(any_model.linear_layers)
    return [
        Problem(
            where=f"model.lora.{key}",
            what=f"comparing {shortened(pattern)!r} with the names of the model's layers does not end within "
            f"{SECONDS:g} s",
            fix="write it without repetitions inside repetitions, or give a list of names",
        )
        for key, pattern in patterns.items()
        if not ends_soon(pattern, names)
    ]


def adapter_problems(lora: LoraConfig, sizes: ModelSizes) -> Iterator[Problem]:
    """Targets that match no layer, or something other than a linear layer, or that vLLM has no adapters for."""
    others = () if lora.target_modules == "all-linear" else sizes.other_modules
    wrong = sorted(name for name in others if is_adapted(name, lora))
    if wrong:
        shown = ", ".join(wrong[:_SHOWN]) + (", ..." if len(wrong) > _SHOWN else "")
        yield Problem(
            where="model.lora.target_modules",
            what=f"{_told(lora)} matches {shown}: embeddings, the output head, norms and blocks cannot be adapted",
            fix=_FIX,
        )
    elif not any(is_adapted(name, lora) for name in sizes.linear_layers):
        yield Problem(
            where="model.lora.target_modules",
            what=f"{_told(lora)} matches no linear layer of the model",
            fix=_FIX,
        )
    elif lora.generator_weights == "separate":
        yield from _problems_of_vllm(lora, sizes)


def _problems_of_vllm(lora: LoraConfig, sizes: ModelSizes) -> Iterator[Problem]:
    where, fix = "model.lora.generator_weights", "set it to merged"
    if lora.rank > VLLM_RANKS[-1]:
        what = f"vLLM has adapters of rank {VLLM_RANKS[-1]} at most, and model.lora.rank is {lora.rank}"
        yield Problem(where=where, what=what, fix=f"{fix}, or lower model.lora.rank")
    seeing = [name for name in sizes.linear_layers if _VISION in name and is_adapted(name, lora)]
    if seeing:
        what = f"vLLM has no adapters in a vision tower, and {_told(lora)} matches {', '.join(seeing[:_SHOWN])}"
        yield Problem(where=where, what=what, fix=f'{fix}, or model.lora.exclude_modules to ".*visual.*"')


@lru_cache(maxsize=16)
def ends_soon(pattern: str, texts: Collection[str]) -> bool:
    """Whether the pattern is compared with all texts within `SECONDS`. Python's own matching cannot be interrupted, so
    another process does it."""
    command = [sys.executable, "-I", "-S", "-c", _MATCH]
    asked = json.dumps([pattern, sorted(texts)])
    try:
        subprocess.run(command, input=asked, text=True, check=True, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _told(lora: LoraConfig) -> str:
    excluded = "" if lora.exclude_modules is None else f" without exclude_modules {_shown(lora.exclude_modules)}"
    return f"{_shown(lora.target_modules)}{excluded}"


def _shown(modules: str | tuple[str, ...]) -> str:
    return repr(shortened(modules)) if isinstance(modules, str) else shortened(str(modules))
