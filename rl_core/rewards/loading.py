"""Loading a reward function, in a scoring process and nowhere else."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

from rl_core.rewards.spec import PARSER, RewardSpec

_USER_MODULE = "sightline_user_reward"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scorer:
    """A loaded reward.

    Attributes:
        score: Takes a RewardSample; what it returns is not yet checked.
        parse: The answer it reads from a response; None where the source offers no `parse`.
    """

    score: Callable[..., object]
    parse: Callable[[str], str | None] | None


def load_scorer(spec: RewardSpec) -> Scorer:
    """Import the source and bind the keyword arguments.

    Raises:
        Exception: whatever the file raises while it is imported.
        AttributeError: it does not define the function after all.
    """
    module = _import_file(spec.source) if isinstance(spec.source, Path) else importlib.import_module(spec.source)
    function = getattr(module, spec.function)
    return Scorer(score=partial(function, **spec.kwargs), parse=getattr(module, PARSER) if spec.has_parser else None)


def _import_file(path: Path) -> ModuleType:
    # Last on the path: the file may import its neighbours, but none of them takes the place of a library.
    sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(_USER_MODULE, path)
    assert spec is not None and spec.loader is not None, "resolve_reward lets just .py files through"
    module = importlib.util.module_from_spec(spec)
    sys.modules[_USER_MODULE] = module
    spec.loader.exec_module(module)
    return module
