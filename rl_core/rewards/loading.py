"""Loading reward functions, in a scoring process and nowhere else."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from rl_core.rewards.sample import RewardSample
from rl_core.rewards.spec import PARSER, RewardSpec

_USER_MODULE = "sightline_user_reward"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scorer:
    """A loaded reward function with its keyword arguments. What it returns is not yet checked.

    Attributes:
        spec: What was loaded.
        function: Takes what its style asks for.
        parse: The answer it reads from a response; None where the source offers no `parse`.
    """

    spec: RewardSpec
    function: Callable[..., object]
    parse: Callable[[str], str | None] | None

    def score(self, sample: RewardSample) -> object:
        """Call it with one sample; an awaitable is handed on."""
        return self.function(sample if self.spec.style == "sample" else easyr1_input(sample))

    def score_batch(self, samples: Sequence[RewardSample]) -> object:
        """Call a function of style `batch` with all of them."""
        return self.function([easyr1_input(sample) for sample in samples])


def easyr1_input(sample: RewardSample) -> dict[str, Any]:
    """What EasyR1 hands to a reward function (its `workers/reward/function.py`), key by key."""
    return {
        "response": sample.response,
        "response_length": sample.response_length,
        "ground_truth": sample.ground_truth,
    }


def load_scorer(spec: RewardSpec) -> Scorer:
    """Import the source, unless another function of it was loaded before, and bind the keyword arguments.

    Raises:
        Exception: whatever the file raises while it is imported.
        AttributeError: it does not define the function after all.
    """
    module = _import_file(spec.source) if isinstance(spec.source, Path) else importlib.import_module(spec.source)
    function = partial(getattr(module, spec.function), **spec.kwargs)
    return Scorer(spec=spec, function=function, parse=getattr(module, PARSER) if spec.has_parser else None)


def _import_file(path: Path) -> ModuleType:
    name = f"{_USER_MODULE}:{path}"
    if name in sys.modules:
        return sys.modules[name]
    # Last on the path: the file may import its neighbours, but none of them takes the place of a library.
    sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "resolve_rewards lets just .py files through"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # a second function of the file must not find half a module
        raise
    return module
