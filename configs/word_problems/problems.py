"""Arithmetic word problems in text, of one and of two steps, as a data source of a config (docs/data.md).

Validation has sentences that training never has: a model that has only learned to fill in the sentences of training
cannot answer them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

NAMES = ("Ada", "Ben", "Carla", "David", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kavya", "Liam")
THINGS = ("apples", "books", "coins", "marbles", "pencils", "shells", "stamps", "stickers", "eggs", "cards")


class Solved(NamedTuple):
    """Numbers of a problem, and the equations that solve it, one for each step."""

    numbers: dict[str, int]
    steps: list[str]
    answer: int


class Kind(NamedTuple):
    """A kind of problem: how its numbers are drawn, and sentences that ask for them."""

    draw: Callable[[np.random.Generator], Solved]
    trained: tuple[str, ...]
    held_out: tuple[str, ...]


def rows(seed: int, count: int, *, held_out: bool = False, worded: bool = False) -> Iterator[dict[str, str]]:
    """Yield problems; equal arguments give equal rows.

    Args:
        seed: Decides which problems are drawn.
        count: Number of rows.
        held_out: Take the sentences that are never trained on.
        worded: The answer is the whole response to imitate, with its equations, instead of the number alone.
    """
    draw = np.random.default_rng(seed)
    for _ in range(count):
        kind = _one_of(draw, KINDS)
        problem = kind.draw(draw)
        sentence = _one_of(draw, kind.held_out if held_out else kind.trained)
        name, other = (NAMES[index] for index in draw.choice(len(NAMES), 2, replace=False))
        question = sentence.format(name=name, other=other, things=_one_of(draw, THINGS), **problem.numbers)
        yield {"problem": question, "answer": response(problem) if worded else f"{problem.answer}"}


def response(problem: Solved) -> str:
    """The shortest right response that shows every step."""
    return "\n".join([*problem.steps, f"<answer>{problem.answer}</answer>"])


Choice = TypeVar("Choice")


def _one_of(draw: np.random.Generator, choices: Sequence[Choice]) -> Choice:
    return choices[draw.integers(len(choices))]


def _between(draw: np.random.Generator, least: int, most: int) -> int:
    return int(draw.integers(least, most + 1))


def _sum(draw: np.random.Generator) -> Solved:
    a, b = _between(draw, 2, 99), _between(draw, 2, 99)
    return Solved({"a": a, "b": b}, [f"{a} + {b} = {a + b}"], a + b)


def _difference(draw: np.random.Generator) -> Solved:
    a = _between(draw, 10, 99)
    b = _between(draw, 2, a - 1)
    return Solved({"a": a, "b": b}, [f"{a} - {b} = {a - b}"], a - b)


def _product(draw: np.random.Generator) -> Solved:
    a, b = _between(draw, 2, 9), _between(draw, 2, 12)
    return Solved({"a": a, "b": b}, [f"{a} * {b} = {a * b}"], a * b)


def _sum_and_difference(draw: np.random.Generator) -> Solved:
    a, b = _between(draw, 5, 60), _between(draw, 5, 40)
    c = _between(draw, 2, a + b - 1)
    steps = [f"{a} + {b} = {a + b}", f"{a + b} - {c} = {a + b - c}"]
    return Solved({"a": a, "b": b, "c": c}, steps, a + b - c)


def _product_and_sum(draw: np.random.Generator) -> Solved:
    a, b, c = _between(draw, 2, 9), _between(draw, 2, 9), _between(draw, 2, 30)
    steps = [f"{a} * {b} = {a * b}", f"{a * b} + {c} = {a * b + c}"]
    return Solved({"a": a, "b": b, "c": c}, steps, a * b + c)


KINDS = (
    Kind(
        _sum,
        trained=(
            "{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?",
            "{name} has {a} {things} and {other} has {b}. How many {things} do they have together?",
            "On Monday {name} found {a} {things}, and on Tuesday {b}. How many {things} did {name} find in all?",
            "There are {a} {things} in one drawer and {b} in another. How many {things} are in both drawers?",
            "{name} put {a} {things} into a basket, and {other} added {b}. How many {things} are in the basket?",
            "{name} collected {a} {things} last year and {b} this year. What is the total number of {things}?",
        ),
        held_out=(
            "A shelf holds {a} {things}. {name} puts {b} more on it. How many {things} are on the shelf now?",
            "{name} needs {a} {things} for one class and {b} for another. How many {things} does {name} need?",
        ),
    ),
    Kind(
        _difference,
        trained=(
            "{name} had {a} {things} and gave {b} of them to {other}. How many {things} does {name} have left?",
            "There were {a} {things} in a bag. {name} took out {b}. How many {things} are still in the bag?",
            "{name} has {a} {things}, {other} has {b}. How many more {things} does {name} have than {other}?",
            "{name} bought {a} {things} and used {b} of them. How many {things} remain for {name}?",
            "{name} needs {a} {things} and has {b}. How many more {things} does {name} need?",
            "Of {a} {things} on a table, {b} belong to {name}. How many {things} do not belong to {name}?",
        ),
        held_out=(
            "Of {a} {things} that {name} collected, {b} got lost. How many {things} remain?",
            "{name} wants {a} {things} and has {b} so far. How many {things} are missing?",
        ),
    ),
    Kind(
        _product,
        trained=(
            "{name} has {a} boxes with {b} {things} in each. How many {things} does {name} have?",
            "{name} gives {b} {things} to each of {a} friends. How many {things} does {name} give away?",
            "There are {a} rows of {b} {things}. How many {things} are there?",
            "Each of {a} shelves holds {b} {things}. How many {things} do the shelves hold together?",
            "{name} buys {a} packs of {b} {things}. How many {things} does {name} buy?",
            "{name} makes {b} {things} an hour. How many {things} does {name} make in {a} hours?",
        ),
        held_out=(
            "Every day {name} sells {b} {things}. How many {things} does {name} sell in {a} days?",
            "{a} children bring {b} {things} each. How many {things} do they bring together?",
        ),
    ),
    Kind(
        _sum_and_difference,
        trained=(
            "{name} had {a} {things}, got {b} more and then lost {c}. How many {things} does {name} have now?",
            "{name} and {other} have {a} and {b} {things}. Together they sell {c}. How many {things} are left?",
            "A box had {a} {things}. {name} put in {b} and {other} took out {c}. How many {things} are in the box?",
            "{name} found {a} {things} and bought {b}, but {c} broke. How many whole {things} does {name} have?",
            "On a shelf were {a} {things}. {b} came and {c} were sold. How many {things} were on the shelf then?",
            "{name} started with {a} {things}, received {b} and gave {c} to {other}. How many {things} remain?",
        ),
        held_out=(
            "A shop has {a} {things}. It receives {b} and sells {c} to {name}. How many {things} does it have then?",
        ),
    ),
    Kind(
        _product_and_sum,
        trained=(
            "{name} has {a} bags of {b} {things} and {c} single ones. How many {things} does {name} have?",
            "{name} fills {a} boxes with {b} {things} each and has {c} left over. How many {things} were there?",
            "In each of {a} rooms are {b} {things}, and {c} are in the hall. How many {things} are there in all?",
            "{name} bought {a} packs of {b} {things} and found {c} more. How many {things} does {name} have?",
            "{a} friends bring {b} {things} each, and {name} brings {c}. How many {things} do they bring together?",
            "There are {a} rows of {b} {things} and {c} beside them. How many {things} are there?",
        ),
        held_out=("On each of {a} tables lie {b} {things}, and {c} on the floor. How many {things} can {name} see?",),
    ),
)
