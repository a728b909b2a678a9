"""Jinja templates that a user writes into a config or a file beside it: compiled in Jinja's sandbox, without other
files, and rendered for a limited time."""

import signal
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
from jinja2.sandbox import SandboxedEnvironment

from rl_core.wording import shortened

_MOST_SECONDS: Final = 2.0
"""The longest time of one rendering."""

_READS_OTHERS = (jinja2.nodes.Include, jinja2.nodes.Import, jinja2.nodes.FromImport, jinja2.nodes.Extends)

_MISTAKES = (
    *(jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError),
    *(RecursionError, TimeoutError),
)
"""Exceptions of expressions that do not fit their values, or do not end."""


class TextTemplate:
    """A compiled template. `name` is a key or a file, for messages, `variables` are those that it may use (None: any),
    and `used` those that it does. Raises ValueError if the text is not Jinja, or uses an unknown variable or another
    template."""

    def __init__(self, source: str, *, name: str, variables: Collection[str] | None) -> None:
        self._name = name
        environment = SandboxedEnvironment(undefined=jinja2.StrictUndefined, autoescape=False)
        try:
            self._template, self.used = _compiled(source, environment)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
        if variables is not None and (unknown := sorted(self.used - set(variables))):
            raise ValueError(
                f"{name} names the unknown variable{'s' if len(unknown) > 1 else ''} "
                f"{', '.join(shortened(variable, 40) for variable in unknown[:5])}; there is {', '.join(variables)}"
            )

    def render(self, /, **values: Any) -> str:
        """The text for these values. Raises ValueError if they cannot be rendered, or not in time."""
        try:
            with _limited_time():
                return self._template.render(values)
        except _MISTAKES as error:
            raise ValueError(f"{self._name} cannot be rendered: {shortened(str(error))}") from None


def target_template(source: str) -> TextTemplate:
    """The template of a response to imitate (`cold_start.target_template`). Raises ValueError as TextTemplate does."""
    return TextTemplate(source, name="cold_start.target_template", variables=("answer", "question"))


def check_chat_template(source: str) -> None:
    """Check that a chat template can be compiled as in transformers. Raises ValueError."""
    _compiled(source, _chat_environment())


def render_chat(source: str, messages: Sequence[Mapping[str, str]], tokens: Mapping[str, str]) -> str:
    """A chat as transformers renders it, without a prompt for the next turn; `tokens` are `eos_token` and the like.
    Raises ValueError where the template cannot be compiled, or refuses the chat."""
    template, _ = _compiled(source, _chat_environment())
    try:
        with _limited_time():
            return template.render(messages=messages, add_generation_prompt=False, **tokens)
    except _MISTAKES as error:
        raise ValueError(f"the chat template cannot be rendered: {shortened(str(error))}") from None


def _chat_environment() -> SandboxedEnvironment:
    """With the settings and functions that transformers gives a chat template."""
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlocks]
    )
    environment.globals |= {"raise_exception": _refuse_chat, "strftime_now": time.strftime}
    return environment


def _refuse_chat(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _compiled(source: str, environment: SandboxedEnvironment) -> tuple[jinja2.Template, frozenset[str]]:
    """The compiled template, and the variables that it uses. Raises ValueError, with the line."""
    try:
        tree = environment.parse(source)
        for node in tree.find_all(_READS_OTHERS):
            raise ValueError(f"uses another template in line {node.lineno}, which is not possible: write its text here")
        return environment.from_string(source), frozenset(jinja2.meta.find_undeclared_variables(tree))
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"is not valid Jinja, line {error.lineno}: {shortened(error.message or '')}") from None
    except (RecursionError, SyntaxError, MemoryError):  # from Python's compiler, which compiles the generated code
        raise ValueError("has expressions or blocks that are nested too deeply") from None


@contextmanager
def _limited_time() -> Iterator[None]:
    """Raises TimeoutError in a block whose loops take too long; a single operation of Python is not interrupted. There
    is no limit outside the main thread, which alone may set signal handlers, and in which rows are rendered."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise TimeoutError(f"it takes more than {_MOST_SECONDS:g} seconds for one text")

    handler = signal.signal(signal.SIGALRM, end)
    timer = signal.setitimer(signal.ITIMER_REAL, _MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


class _GenerationBlocks(jinja2.ext.Extension):
    """`{% generation %}`, with which transformers marks the model's part of a conversation; only its content is
    rendered here."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        """The block's content."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
