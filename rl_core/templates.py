"""Texts with Jinja in them, as a person writes them into a config or a file beside it.

They are compiled in Jinja's sandbox and rendered within bounds, so that each of them becomes a text or a sentence: no
other file is read, loops and macros have a number of turns, products and powers a size.
"""

import threading
from collections.abc import Collection
from typing import Any, Final

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.sandbox
import jinja2.visitor

from rl_core.wording import shortened

MOST_TURNS: Final = 200_000
"""Turns of all loops and calls of macros in one rendering."""

_LARGEST_TEMPLATE = 1 << 18
_LONGEST_TEXT = 1 << 26
_READS_OTHERS = (jinja2.nodes.Include, jinja2.nodes.Import, jinja2.nodes.FromImport, jinja2.nodes.Extends)

_MISTAKES = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""What an expression raises that does not fit its values."""


class TextTemplate:
    """A compiled template.

    Attributes:
        used: The variables that it uses.

    Args:
        source: The text.
        name: What messages call it: a key or a file.
        variables: The variables that there are.

    Raises:
        ValueError: it is no Jinja, or names a variable that there is not, or another template.
    """

    def __init__(self, source: str, *, name: str, variables: Collection[str]) -> None:
        self._name = name
        self._environment = _Bounded(undefined=jinja2.StrictUndefined, autoescape=False)
        try:
            self._template, self.used = _compiled(source, self._environment)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
        if unknown := sorted(self.used - set(variables)):
            raise ValueError(
                f"{name} names the unknown variable{'s' if len(unknown) > 1 else ''} "
                f"{', '.join(shortened(variable, 40) for variable in unknown[:5])}; there is {', '.join(variables)}"
            )

    def render(self, **values: Any) -> str:
        """The text for these values. Raises ValueError, within seconds whatever the template does; of the kind
        Unending when that has nothing to do with the values."""
        try:
            return _rendered(self._template, self._environment, values)
        except ValueError as error:
            raise type(error)(f"{self._name} {error}") from None


def target_template(source: str) -> TextTemplate:
    """The template of a response to imitate (`cold_start.target_template`), of an `answer` and its `question`.

    Raises:
        ValueError: as TextTemplate, and for one that goes on for ever.
    """
    template = TextTemplate(source, name="cold_start.target_template", variables=("answer", "question"))
    try:
        template.render(answer="1", question="How many?")
    except Unending:
        raise
    except ValueError:
        return template  # answers may be of a form that this one has not; the trial of the reward renders real ones
    return template


def check_chat_template(source: str) -> None:
    """Whether a model's folder could have this chat template: compiled as transformers does, and tried on one question
    to see that it comes to an end. What it says to other conversations is not known beforehand.

    Raises:
        ValueError: it is no Jinja, names another template, or goes on for ever.
    """
    environment = _Bounded(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlocks]
    )
    environment.globals.update(raise_exception=_refuse, strftime_now=lambda _: "", bos_token="", eos_token="")
    environment.filters["tojson"] = lambda value, **_: str(value)
    template, _ = _compiled(source, environment)
    conversation = [{"role": "user", "content": "question"}]
    try:
        _rendered(template, environment, {"messages": conversation, "add_generation_prompt": True})
    except Unending:
        raise
    except ValueError:
        return  # of this conversation; the preparation says what it finds with the real ones


class Unending(ValueError):
    """A rendering goes beyond its bounds."""


def _compiled(source: str, environment: "_Bounded") -> tuple[jinja2.Template, frozenset[str]]:
    """A template that stands alone, in which every loop and macro counts its turns and every text its length, and the
    variables that it uses. Raises ValueError with the line where it cannot be made."""
    if len(source) > _LARGEST_TEMPLATE:
        raise ValueError(f"has {len(source)} characters, more than a template may have, {_LARGEST_TEMPLATE}")
    try:
        tree = environment.parse(source)
        for node in tree.find_all(_READS_OTHERS):
            raise ValueError(f"names another template in line {node.lineno}, and there is none: write its text here")
        used = frozenset(jinja2.meta.find_undeclared_variables(tree))
        return environment.from_string(_Counted().visit(tree)), used
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"is no Jinja, line {error.lineno}: {shortened(error.message or '')}") from None
    except (RecursionError, SyntaxError, MemoryError):  # Python's own compiler takes what Jinja makes of it
        raise ValueError("has expressions or blocks that are nested too deeply") from None


class _Counted(jinja2.visitor.NodeTransformer):
    """Puts a call of the environment into the body of every loop and macro, and in the place of every `~`."""

    def _begin_with_turn(self, node: Any) -> Any:
        self.generic_visit(node)
        node.body.insert(0, jinja2.nodes.ExprStmt(_call("take_turn"), lineno=node.lineno))
        return node

    visit_For = visit_Macro = visit_CallBlock = _begin_with_turn

    def visit_Concat(self, node: Any) -> Any:
        self.generic_visit(node)
        return _call("join_texts", *node.nodes).set_lineno(node.lineno)


def _call(name: str, *arguments: jinja2.nodes.Expr) -> jinja2.nodes.Call:
    return jinja2.nodes.Call(jinja2.nodes.EnvironmentAttribute(name), list(arguments), [], None, None)


def _rendered(template: jinja2.Template, environment: "_Bounded", values: dict[str, Any]) -> str:
    environment.start_turns()
    try:
        return template.render(values)
    except Unending:
        raise
    except MemoryError:
        raise Unending("makes a text larger than the memory") from None
    except RecursionError:
        raise Unending("calls itself without end") from None
    except _MISTAKES as error:
        raise ValueError(f"cannot be rendered: {shortened(str(error))}") from None


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


class _Bounded(jinja2.sandbox.SandboxedEnvironment):
    """Jinja's sandbox, with a number of turns for each rendering and a size for values."""

    intercepted_binops = frozenset(["+", "*", "**"])

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals.pop("lipsum")
        self._turns = threading.local()

    def start_turns(self) -> None:
        """A rendering begins in this thread."""
        self._turns.left = MOST_TURNS

    def take_turn(self) -> str:
        """A loop or macro begins its body once more. Raises Unending after too many of them."""
        self._turns.left -= 1
        if self._turns.left < 0:
            raise Unending(f"has loops that go on after {MOST_TURNS} turns")
        return ""

    def join_texts(self, *parts: object) -> str:
        """What `~` makes of its parts. Raises Unending for a text that nobody reads."""
        texts = [str(part) for part in parts]
        _check_length(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The value of a sum, product or power. Raises Unending for one that is none of a text."""
        lengths = [len(value) for value in (left, right) if isinstance(value, str | list | tuple)]
        numbers = [value for value in (left, right) if isinstance(value, int)]
        if operator == "+":
            _check_length(sum(lengths))
        elif operator == "*" and lengths and numbers:
            _check_length(lengths[0] * numbers[0])
        elif len(numbers) == 2:
            bits = left.bit_length() * max(right, 1) if operator == "**" else left.bit_length() + right.bit_length()
            _check_length(bits << 6)  # a number is longer work than a text
        return super().call_binop(context, operator, left, right)


def _check_length(length: int) -> None:
    if length > _LONGEST_TEXT:
        raise Unending(f"makes a text of {length} characters")


class _GenerationBlocks(jinja2.ext.Extension):
    """`{% generation %}`, by which transformers marks what a model says; here it is its content."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        """The block's content."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
