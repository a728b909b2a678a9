"""Jinja templates that a user writes into a config or a file beside it.

They are compiled in Jinja's sandbox, read no other file, and are rendered for a limited time, so that each gives a text
or an error message.
"""

import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
from jinja2.sandbox import SandboxedEnvironment

from rl_core.wording import shortened

_MOST_SECONDS: Final = 2.0
"""The longest time of one rendering."""

_READS_OTHERS = (jinja2.nodes.Include, jinja2.nodes.Import, jinja2.nodes.FromImport, jinja2.nodes.Extends)

_MISTAKES = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""Exceptions of expressions that do not fit their values."""


class TextTemplate:
    """A compiled template.

    Attributes:
        used: The variables that it uses.

    Args:
        source: The text.
        name: Its name in messages: a key or a file.
        variables: The variables that it may use.

    Raises:
        ValueError: the text is not Jinja, or uses an unknown variable or another template.
    """

    def __init__(self, source: str, *, name: str, variables: Collection[str]) -> None:
        self._name = name
        environment = SandboxedEnvironment(undefined=jinja2.StrictUndefined, autoescape=False)
        try:
            self._template, self.used = _compiled(source, environment)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
        if unknown := sorted(self.used - set(variables)):
            raise ValueError(
                f"{name} names the unknown variable{'s' if len(unknown) > 1 else ''} "
                f"{', '.join(shortened(variable, 40) for variable in unknown[:5])}; there is {', '.join(variables)}"
            )

    def render(self, **values: Any) -> str:
        """The text for these values.

        Raises:
            Unending: the rendering does not end in time.
            ValueError: these values cannot be rendered.
        """
        try:
            return _rendered(self._template, values)
        except ValueError as error:
            raise type(error)(f"{self._name} {error}") from None


def target_template(source: str) -> TextTemplate:
    """The template of a response to imitate (`cold_start.target_template`), with the variables `answer` and `question`.

    Raises:
        ValueError: the text is not Jinja, uses an unknown variable or another template, or does not end in
            time.
    """
    template = TextTemplate(source, name="cold_start.target_template", variables=("answer", "question"))
    try:
        template.render(answer="1", question="How many?")
    except Unending:
        raise
    except ValueError:
        return template  # it may need answers of another form; the trial of the reward renders real answers
    return template


def check_chat_template(source: str) -> None:
    """Check a chat template: it is compiled as in transformers, and rendered for one question to see that it ends. How
    it renders other conversations is not checked.

    Raises:
        ValueError: the text is not Jinja, uses another template, or does not end in time.
    """
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlocks]
    )
    environment.globals.update(raise_exception=_refuse, strftime_now=lambda _: "", bos_token="", eos_token="")
    environment.filters["tojson"] = lambda value, **_: str(value)
    template, _ = _compiled(source, environment)
    conversation = [{"role": "user", "content": "question"}]
    try:
        _rendered(template, {"messages": conversation, "add_generation_prompt": True})
    except Unending:
        raise
    except ValueError:
        return  # another conversation may work; the preparation renders the real ones


class Unending(ValueError):
    """A rendering does not end, or not in time."""


def _compiled(source: str, environment: SandboxedEnvironment) -> tuple[jinja2.Template, frozenset[str]]:
    """The compiled template, and the variables that it uses. Raises ValueError, with the line, if it cannot be
    compiled."""
    try:
        tree = environment.parse(source)
        for node in tree.find_all(_READS_OTHERS):
            raise ValueError(f"uses another template in line {node.lineno}, which is not possible: write its text here")
        return environment.from_string(source), frozenset(jinja2.meta.find_undeclared_variables(tree))
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"is not valid Jinja, line {error.lineno}: {shortened(error.message or '')}") from None
    except (RecursionError, SyntaxError, MemoryError):  # from Python's compiler, which compiles the generated code
        raise ValueError("has expressions or blocks that are nested too deeply") from None


def _rendered(template: jinja2.Template, values: dict[str, Any]) -> str:
    try:
        with _limited_time():
            return template.render(values)
    except Unending:
        raise
    except RecursionError:
        raise Unending("calls itself endlessly") from None
    except _MISTAKES as error:
        raise ValueError(f"cannot be rendered: {shortened(str(error))}") from None


@contextmanager
def _limited_time() -> Iterator[None]:
    """Raises Unending in a block whose loops take too long; a single operation of Python is not interrupted. Outside
    the main thread, which alone may set signal handlers, there is no limit; rows and the templates of a config are
    rendered in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise Unending(f"takes more than {_MOST_SECONDS:g} seconds for one text")

    handler = signal.signal(signal.SIGALRM, end)
    timer = signal.setitimer(signal.ITIMER_REAL, _MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


class _GenerationBlocks(jinja2.ext.Extension):
    """`{% generation %}`, with which transformers marks the model's part of a conversation; only its content is
    rendered here."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        """The block's content."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
