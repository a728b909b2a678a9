"""The section `tools`: what the model may call while it answers, and the limits of a conversation."""

import os
from collections.abc import Iterator
from typing import Final, Literal

from pydantic import Field, field_validator
from typing_extensions import override

from rl_core.problem import Problem
from rl_core.section import Section, names_a_secret, refused_secret, without_password
from rl_core.user_code.function import file_named, is_user_function, nearest
from rl_core.wording import shortened

PYTHON: Final = "python"
BUILTIN: Final = ("calculator", PYTHON, "zoom")
"""The tools that Sightline has."""

_LETTERS_PER_TOKEN: Final = 64
"""No text has so many characters for each of its tokens: what is longer is cut before it is tokenised."""

Schedule = Literal["rounds", "continuous"]
"""When a conversation goes on."""

Coordinates = Literal["pixels", "relative_1000"]
"""How a model names places in a picture."""


class McpServer(Section):
    """A server of the Model Context Protocol, which the run starts, or which is there."""

    command: tuple[str, ...] = ()
    """The program and its arguments; it speaks over its standard input and output."""
    url: str | None = None
    """Address of a server that is there (streamable HTTP)."""
    tools: tuple[str, ...] = ()
    """The tools that the model is offered; without any, all."""
    variables: tuple[str, ...] = ()
    """Names of the environment variables that `command` gets besides PATH, HOME and the like: those with its keys."""
    headers: dict[str, str] = {}
    """[HTTP header] -> the environment variable that has its value, such as `{Authorization: SEARCH_TOKEN}`, for `url`.
    """

    @field_validator("command")
    @classmethod
    def _command_holds_no_secret(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        for part in command:
            name, is_given, _ = part.partition("=")
            if (is_given or part.startswith("-")) and names_a_secret(name.replace("-", "_")):
                advice = "let the server read it from a variable, and name that in `variables`"
                raise refused_secret(f"{name} looks like a secret: {advice}")
        return command

    @field_validator("url")
    @classmethod
    def _address_holds_no_password(cls, url: str | None) -> str | None:
        return url and without_password(url, "a variable for a server that `command` starts")

    @override
    def problems(self) -> Iterator[Problem]:
        if bool(self.command) == (self.url is not None):
            yield Problem("command", "there is either a command or a url", "name one of them")
        if self.variables and not self.command:
            yield Problem("variables", "only a command has variables", "leave it out")
        if self.headers and self.url is None:
            yield Problem("headers", "only a url has headers", "leave them out")
        named = [("variables", name) for name in self.variables] + [("headers", name) for name in self.headers.values()]
        for key, name in named:
            if name not in os.environ:
                yield Problem(key, f"the variable {shortened(name)} is not set", "set it, or leave it out")


class ToolsConfig(Section):
    """Tools that the model may call while it answers, and the limits of a conversation. A turn of the model with calls
    is followed by a turn with their results, and the next turn of the model."""

    use: tuple[str, ...] = ()
    """The tools: `calculator` (arithmetic), `python` (what a program prints), `zoom` (a part of a picture, as large as
    the limits of pixels allow), and functions of your own (`path/to/file.py:function`)."""
    mcp: dict[str, McpServer] = {}
    """Servers of the Model Context Protocol, by names of your own; their tools are tools of the model."""
    environment: str | None = None
    """A class of your own (`path/to/file.py:Class`) with the state of a conversation: its methods are tools, or its
    `step` answers each turn of the model."""
    schedule: Schedule = "rounds"
    """When the conversations of a step go on: in `rounds`, in which all calls are answered before the next turns are
    sampled, so that a step repeats; or `continuous`, each as soon as its calls are answered, so that slow tools are not
    waited for, and a step repeats up to rounding alone. Held-out rows are answered in rounds."""
    max_turns: int = Field(default=4, ge=2, le=64)
    """Most turns of the model in a conversation, each of at most `rollout.max_response_length` tokens; calls in the
    last one are not answered."""
    max_calls_per_turn: int = Field(default=4, ge=1, le=64)
    """Most calls of a turn that are carried out; the model is told that further ones were not."""
    max_result_length: int = Field(default=512, ge=16)
    """Most tokens of one turn of results, images included. Longer texts are cut; an image that does not fit ends the
    conversation before it, as a response that is cut."""
    max_images: int = Field(default=4, ge=0)
    """Most images of all results of a conversation, besides those of the prompt."""
    max_pixels: int | None = Field(default=None, ge=1)
    """Images that `zoom` and functions of your own show have at most this area, in pixels; null: `data.max_pixels`."""
    coordinates: Coordinates = "pixels"
    """How the model names places to `zoom`: in pixels of the picture as it sees it (Qwen2.5-VL), or in thousandths of
    its sides (Qwen3-VL)."""
    result_role: Literal["tool", "user"] = "tool"
    """The role of a turn of results in the chat template; `user` for templates that show no images of a tool."""

    sandbox: Literal["landlock", "none"] = "landlock"
    """How programs of the tool `python` are confined: they read the installed libraries, and reach no other file, no
    network and no process (Linux 6.12 or later); or not at all."""

    workers: int = Field(default=2, ge=1, le=256)
    """Processes that call your functions and `python`, and as many that hold your environments."""
    async_calls: int = Field(default=16, ge=1, le=1024)
    """Calls of an `async def` function that a process has under way at one time, and of an MCP server. They begin
    together, and the next ones when all of them have ended."""
    timeout_seconds: float = Field(default=10.0, gt=0.0)
    """Time limit of one call of your functions or of an MCP server, and of a program of `python`; a turn in an
    environment has that of all calls of its conversation."""
    load_timeout_seconds: float = Field(default=120.0, gt=0.0)
    """Time limit of the import of your functions in each process, and what the first call there, or the start of an MCP
    server, may take longer than later ones."""
    memory_limit_gib: float = Field(default=4.0, gt=0.0)
    """Address space of each of these processes, in GiB; MCP servers have no limit."""
    max_failed_share: float = Field(default=0.05, ge=0.0, le=1.0)
    """The run stops when more than this share of a step's calls of your functions failed, or of those of a validation
    or an evaluation. What the model does wrong is no failure."""

    @property
    def own(self) -> list[str]:
        """The user's own functions among the tools, as the config names them, in their order."""
        return [*filter(is_user_function, self.use)]

    @property
    def isolated(self) -> list[str]:
        """The tools that are called in separate processes, as the config names them, in their order."""
        return [one for one in self.use if one == PYTHON or is_user_function(one)]

    @property
    def has_processes(self) -> bool:
        """Whether anything is called in separate processes."""
        return bool(self.isolated or self.mcp or self.environment)

    @property
    def longest_text(self) -> int:
        """Most characters of a text that are looked at."""
        return _LETTERS_PER_TOKEN * self.max_result_length

    @property
    def user_code(self) -> list[str]:
        """These functions, and the class of the environment."""
        return [*self.own, *([] if self.environment is None else [self.environment])]

    @property
    def longest_opening(self) -> int:
        """Most tokens of what the environment shows at the end of a prompt."""
        return 0 if self.environment is None else self.max_result_length

    @property
    def files(self) -> list[str]:
        """Their files as the config names them, each once and sorted."""
        return sorted({path for code in self.user_code if (path := file_named(code)) is not None})

    @override
    def problems(self) -> Iterator[Problem]:
        if not self.use and self.environment is None and not self.mcp:
            yield Problem("use", "there is neither a tool nor an environment", "name one, or leave the section out")
        names = [one.rpartition(":")[2] for one in self.use]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield Problem("use", f"{', '.join(twice)} stands there twice", "give each tool a name of its own")
        for one in self.use:
            if one not in (*BUILTIN, *self.own):
                what = f"{shortened(one)!r} is no built-in tool{nearest(one, BUILTIN)}"
                yield Problem("use", what, "correct the name; a function of your own is path/to/file.py:function")
        if "zoom" in self.use and self.max_images == 0:
            yield Problem("max_images", "zoom gives images, and none is allowed", "raise it, or leave zoom out of use")
