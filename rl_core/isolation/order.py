"""What passes between the run and the processes that call user functions. These start fast because this imports no
library."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

ASYNC_GRACE_SECONDS = 2.0
"""The process of an `async def` function ends each call at its time limit by itself. If it has not done so after this
much more time, one of the calls blocks the others, and the process is killed."""

IMAGES_VARIABLE = "SIGHTLINE_IMAGES"
"""Environment variable of the processes with the path of the images."""


class Spec(Protocol):
    """A user function, which the processes load."""

    @property
    def name(self) -> str:
        """Its name in the config."""

    @property
    def source(self) -> str | Path:
        """The dotted name of a module, or the absolute path of a user file."""

    @property
    def is_batch(self) -> bool:
        """Whether one call has many inputs."""

    @property
    def is_async(self) -> bool:
        """Whether it is an `async def` function."""

    @property
    def grace_seconds(self) -> float:
        """A process that ends its calls at their time limit by itself gets so much longer to do so."""

    @property
    def is_outside(self) -> bool:
        """Whether a call may change something outside: then it is not made again because another one failed."""


class Input(Protocol):
    """What a call gets."""

    @property
    def key(self) -> tuple[str, int]:
        """Its place in a batch."""

    @property
    def seed_text(self) -> str:
        """What the random numbers that the function draws depend on."""


class Result(Protocol):
    """What the run gets of a call: a tuple that is sent as JSON."""

    @property
    def error(self) -> str | None:
        """Why the call gave nothing."""


class Function(Protocol):
    """A loaded function. Each method may raise anything, which costs its input alone."""

    @property
    def spec(self) -> Spec:
        """Names it."""

    def call(self, one: Any) -> object:
        """What it returns for one input, which may be an awaitable."""

    def call_all(self, inputs: Sequence[Any]) -> object:
        """What a batch function returns."""

    def result(self, one: Any, returned: object) -> Result:
        """The result for one input of what was returned for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order(ABC):
    """The functions of a section of the config, and their limits. A function is named by its index in `specs`."""

    section: ClassVar[str]
    kind: ClassVar[str]
    """What its functions are called in messages: "reward"."""

    specs: Sequence[Spec]
    timeout_seconds: float
    batch_timeout_seconds: float
    load_timeout_seconds: float
    memory_limit_bytes: int

    def calls_of(self, one: Any) -> int:
        """For so many calls an input may take as long as for one."""
        return 1

    @abstractmethod
    def load(self, index: int) -> Function:
        """Import a function. Raises anything that its module raises."""

    @abstractmethod
    def result(self, *words: Any) -> Result:
        """The result that was sent as these words, checked. Raises an exception where they are not such a result."""

    @abstractmethod
    def failed(self, reason: str) -> Result:
        """The result of a call that gave none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """Asks a process to call one function with some inputs. The timeout is that of one call of an `async def` function;
    the run itself enforces all other limits."""

    function_index: int
    inputs: Sequence[Any]
    timeout_seconds: float
    timeout_reason: str
