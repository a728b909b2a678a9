"""What a run asks of the processes that call what a user has written of its tools."""

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from typing_extensions import override

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.isolation.order import Order
from rl_core.tools.messages import ShownLimits, ToolResult, ToolSpec, TurnResult
from rl_core.user_code.function import find_function

if TYPE_CHECKING:
    from rl_core.tools.own_environment import DescribingEnvironment, OwnEnvironment
    from rl_core.tools.own_tool import Describing, OwnTool

_LETTERS_PER_TOKEN = 64
"""No text has so many characters for each of its tokens: what is longer is cut before it is tokenised."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolOrder(Order):
    """The functions of a user's among the tools, and limits of what they show. With `describes` they are not called,
    but give their schemas as JSON."""

    section: ClassVar = "tools"
    kind: ClassVar = "tool"

    specs: Sequence[ToolSpec]
    limits: ShownLimits
    describes: bool = False

    @staticmethod
    def functions(config: ToolsConfig) -> Sequence[str]:
        """What of the config is loaded, as it is written there."""
        return config.own

    @classmethod
    def of(cls, config: ToolsConfig, data: DataConfig, *, describes: bool = False) -> Self:
        """Raises ValueError where a function is not found."""
        most = config.max_pixels or data.max_pixels
        return cls(
            specs=[spec_of(function) for function in cls.functions(config)],
            timeout_seconds=config.timeout_seconds,
            batch_timeout_seconds=config.timeout_seconds,
            load_timeout_seconds=config.load_timeout_seconds,
            memory_limit_bytes=int(config.memory_limit_gib * 2**30),
            limits=ShownLimits(
                min_pixels=min(data.min_pixels, most),
                max_pixels=most,
                longest_text=_LETTERS_PER_TOKEN * config.max_result_length,
            ),
            describes=describes,
        )

    @override
    def load(self, index: int) -> "OwnTool | Describing":
        from rl_core.tools.own_tool import load_tool  # only the processes of the tools load a user's code

        return load_tool(self.specs[index], self.limits, describes=self.describes)

    @override
    def result(self, *words: Any) -> Any:
        """The `ToolResult`."""
        shown, mistake, error = words
        if error is not None:
            return self.failed(str(error))
        parts = [str(value) if kind == "text" else b64decode(value, validate=True) for kind, value in shown]
        return ToolResult(parts, None if mistake is None else str(mistake), None)

    @override
    def failed(self, reason: str) -> Any:
        return ToolResult([], None, reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentOrder(ToolOrder):
    """The class of the environment, and limits of what it shows."""

    kind: ClassVar = "environment"

    @override
    @staticmethod
    def functions(config: ToolsConfig) -> Sequence[str]:
        return [] if config.environment is None else [config.environment]

    @override
    def calls_of(self, one: Any) -> int:
        """Of a turn those of all turns: its process may have to make the state again."""
        return 1 + sum(len(turn.calls) for turn in one.past) + len(one.calls) if not self.describes else 1

    @override
    def load(self, index: int) -> "OwnEnvironment | DescribingEnvironment":  # type: ignore[override]
        from rl_core.tools.own_environment import load_environment  # only its processes load a user's code

        return load_environment(self.specs[index], self.limits, describes=self.describes)

    @override
    def result(self, *words: Any) -> Any:
        if self.describes:
            return ToolOrder.result(self, *words)
        results, is_done, numbers, error = words
        if error is not None:
            return self.failed(str(error))
        made = [ToolOrder.result(self, *one) for one in results]
        return TurnResult(made, bool(is_done), {str(name): float(value) for name, value in numbers.items()}, None)

    @override
    def failed(self, reason: str) -> Any:
        return ToolOrder.failed(self, reason) if self.describes else TurnResult([], False, {}, reason)


def spec_of(written: str) -> ToolSpec:
    """What a config names. Raises ValueError where it is not found."""
    try:
        found = find_function(written)
    except ValueError as error:
        raise ValueError(f"tools: {error}") from None
    source = found.module or found.file
    return ToolSpec(name=written, source=source, function=found.name, is_async=found.text.is_async(found.name))
