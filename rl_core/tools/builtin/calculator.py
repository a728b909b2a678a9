"""The tool `calculator`: arithmetic, without names and without anything that could take long."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Final

Number = int | float

_MOST_LETTERS: Final = 500
_MOST_BITS: Final = 4096
"""Of a whole number: larger ones take long to compute, and help nobody."""


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > _MOST_BITS:
        raise ValueError("the power is too large")
    result: Number = base**exponent
    return result


_OPERATORS: Final[Mapping[type[ast.operator | ast.unaryop], Callable[..., Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Number]]] = {
    name: getattr(math, name) for name in ("sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "log", "exp", "radians")
} | {"abs": abs, "round": round, "min": min, "max": max}
_CONSTANTS: Final[Mapping[str, float]] = {"pi": math.pi, "e": math.e}


def calculator(expression: str) -> str:
    """Compute an arithmetic expression.

    Args:
        expression: Numbers with + - * / // % ** and brackets, pi, e, and the functions sqrt, sin, cos, tan, asin, acos,
            atan (in radians), radians, log, exp, abs, round, min, max.
    """
    if len(expression) > _MOST_LETTERS:
        raise ValueError(f"the expression has more than {_MOST_LETTERS} letters")
    try:
        value = _value(ast.parse(expression.strip().replace("^", "**"), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("this is no arithmetic expression") from None
    except (ArithmeticError, TypeError) as error:
        raise ValueError(str(error)) from None
    if isinstance(value, complex):
        raise ValueError("the result is no real number")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError("the result is too large")
    return str(value) if isinstance(value, int) else f"{value:.12g}"


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("this is no arithmetic expression")
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=kind, operand=inner) if type(kind) in _OPERATORS:
            return _OPERATORS[type(kind)](_value(inner))
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _OPERATORS:
            return _bounded(_OPERATORS[type(kind)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_value, given))
        case _:
            raise ValueError(f"{ast.unparse(node)} is not allowed in an arithmetic expression")


def _bounded(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError("a number is too large")
    return value
