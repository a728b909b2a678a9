"""Jinja templates that a user writes into a config or a file beside it.

They are compiled in Jinja's sandbox and rendered within limits, so that each gives a text or an error message: no other
file is read, and the number of loop iterations and the size of texts and numbers are limited.
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
"""Most loop iterations and macro calls in one rendering."""

_LARGEST_TEMPLATE = 1 << 18
_LONGEST_TEXT = 1 << 26
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
        """The text for these values.

        Raises:
            Unending: the rendering exceeds the limits, for any values.
            ValueError: these values cannot be rendered.
        """
        try:
            return _rendered(self._template, self._environment, values)
        except ValueError as error:
            raise type(error)(f"{self._name} {error}") from None


def target_template(source: str) -> TextTemplate:
    """The template of a response to imitate (`cold_start.target_template`), with the variables `answer` and `question`.

    Raises:
        ValueError: the text is not Jinja, uses an unknown variable or another template, or exceeds the limits.
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
        ValueError: the text is not Jinja, uses another template, or exceeds the limits.
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
        return  # another conversation may work; the preparation renders the real ones


class Unending(ValueError):
    """A rendering exceeds its limits."""


def _compiled(source: str, environment: "_Bounded") -> tuple[jinja2.Template, frozenset[str]]:
    """The compiled template, in which loops and macros count their iterations and texts their length, and the variables
    that it uses. Raises ValueError, with the line, if it cannot be compiled."""
    if len(source) > _LARGEST_TEMPLATE:
        raise ValueError(f"has {len(source)} characters, more than the limit of {_LARGEST_TEMPLATE}")
    try:
        tree = environment.parse(source)
        for node in tree.find_all(_READS_OTHERS):
            raise ValueError(f"uses another template in line {node.lineno}, which is not possible: write its text here")
        used = frozenset(jinja2.meta.find_undeclared_variables(tree))
        return environment.from_string(_Counted().visit(tree)), used
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"is not valid Jinja, line {error.lineno}: {shortened(error.message or '')}") from None
    except (RecursionError, SyntaxError, MemoryError):  # from Python's compiler, which compiles the generated code
        raise ValueError("has expressions or blocks that are nested too deeply") from None


class _Counted(jinja2.visitor.NodeTransformer):
    """Inserts a call of the environment into the body of every loop and macro, and replaces every `~` by one."""

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
        raise Unending("gives a text that does not fit into memory") from None
    except RecursionError:
        raise Unending("calls itself endlessly") from None
    except _MISTAKES as error:
        raise ValueError(f"cannot be rendered: {shortened(str(error))}") from None


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


class _Bounded(jinja2.sandbox.SandboxedEnvironment):
    """Jinja's sandbox with limits on loop iterations and on the size of values."""

    intercepted_binops = frozenset(["+", "*", "**"])

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals.pop("lipsum")
        self._turns = threading.local()

    def start_turns(self) -> None:
        """A rendering begins in this thread."""
        self._turns.left = MOST_TURNS

    def take_turn(self) -> str:
        """Count a loop iteration or macro call. Raises Unending if there are too many."""
        self._turns.left -= 1
        if self._turns.left < 0:
            raise Unending(f"has loops that take more than {MOST_TURNS} iterations")
        return ""

    def join_texts(self, *parts: object) -> str:
        """The result of `~`. Raises Unending if the text is too long."""
        texts = [str(part) for part in parts]
        _check_length(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The value of a sum, product or power. Raises Unending if it is too large."""
        lengths = [len(value) for value in (left, right) if isinstance(value, str | list | tuple)]
        numbers = [value for value in (left, right) if isinstance(value, int)]
        if operator == "+":
            _check_length(sum(lengths))
        elif operator == "*" and lengths and numbers:
            _check_length(lengths[0] * numbers[0])
        elif len(numbers) == 2:
            bits = left.bit_length() * max(right, 1) if operator == "**" else left.bit_length() + right.bit_length()
            _check_length(bits << 6)  # computing with numbers takes longer than with texts
        return super().call_binop(context, operator, left, right)


def _check_length(length: int) -> None:
    if length > _LONGEST_TEXT:
        raise Unending(f"gives a text of {length} characters, more than the limit of {_LONGEST_TEXT}")


class _GenerationBlocks(jinja2.ext.Extension):
    """`{% generation %}`, with which transformers marks the model's part of a conversation; only its content is
    rendered here."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        """The block's content."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
