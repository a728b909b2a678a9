"""Finds the reward functions that the config names. A user's file is read as text here and never run."""

import ast
from collections.abc import Iterator
from pathlib import Path

import rl_core.rewards.builtin
from rl_core.config.reward import RewardChoice, RewardConfig, RewardTerm
from rl_core.problem import Problem
from rl_core.rewards.call_forms import GIVEN, TRL_TRAINERS
from rl_core.rewards.messages import PARSER, RewardSpec, Style
from rl_core.rewards.routing import Route, Routing, Term
from rl_core.user_code.function import argument_problems, find_function, is_user_function, required_names
from rl_core.user_code.text import SourceText, read_source

_FOLDER = Path(rl_core.rewards.builtin.__file__).parent
BUILTIN = {path.stem: f"{rl_core.rewards.builtin.__name__}.{path.stem}" for path in sorted(_FOLDER.glob("[!_]*.py"))}
BUILTIN_FUNCTION = "compute_score"

_GRADER = "grader"
_EASYR1_TYPE, _EASYR1_NAME = "REWARD_TYPE", "REWARD_NAME"
_EASYR1_DEFAULT_TYPE: Style = "batch"

_STYLE_OF_PARAMETER: dict[str, Style] = {"completions": "trl", "solution_str": "verl", "solution_strs": "verl_batch"}
"""[parameter that a function of this form has] -> the form."""

_CONTENT = "content"
"""The key of a message's text: a function in TRL's form whose file names it reads completions as messages."""


def resolve_rewards(config: RewardConfig) -> Routing:
    """Find every configured function. Raises ValueError with one line for each that cannot be found, or whose
    REWARD_TYPE is unknown."""
    specs: list[RewardSpec] = []
    routes: dict[str, Route] = {}
    problems: list[str] = []
    for key, choice in config.choices():
        try:
            if choice.terms:
                routes[key] = _route(choice, config, specs)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(dict.fromkeys(problems)))
    fallback = routes.pop("reward", None)
    by_source = {key.removeprefix("reward.by_source."): route for key, route in routes.items()}
    return Routing(specs=specs, by_source=by_source, fallback=fallback)


def _route(choice: RewardChoice, config: RewardConfig, specs: list[RewardSpec]) -> Route:
    resolved = [resolve_function(term, grader=config.grader) for term in choice.terms]
    terms = [
        Term(function_index=_index_of(spec, specs), name=term.label, weight=term.weight)
        for term, spec in zip(choice.terms, resolved, strict=True)
    ]
    reader = next((place for place, spec in enumerate(resolved) if spec.has_parser), None)
    return Route(terms=terms, is_mixture=choice.function is None, reader=reader)


def _index_of(spec: RewardSpec, specs: list[RewardSpec]) -> int:
    # Arguments that are equal but of different types (1, 1.0 and true) make different functions.
    for index, known in enumerate(specs):
        if repr(known) == repr(spec):
            return index
    specs.append(spec)
    return len(specs) - 1


def resolve_function(term: RewardTerm, *, grader: str | None) -> RewardSpec:
    """Find one function. A built-in reward that takes a `grader` gets it. Raises ValueError as resolve_rewards does."""
    name = term.function
    if is_user_function(name):
        return _resolve_file(term)
    if name not in BUILTIN:  # a plan, which says more, reads the rows of such a config too
        raise ValueError(f"reward.function {name!r} is not a built-in reward")
    source = read_source(_FOLDER / f"{name}.py")
    chosen = {_GRADER: grader} if grader is not None and _GRADER in source.parameters(BUILTIN_FUNCTION) else {}
    return RewardSpec(
        name=name,
        source=BUILTIN[name],
        function=BUILTIN_FUNCTION,
        kwargs=chosen | term.kwargs,
        has_parser=PARSER in source.names,
    )


def _resolve_file(term: RewardTerm) -> RewardSpec:
    try:
        found = find_function(term.function)
    except ValueError as error:
        raise ValueError(f"reward.function {error}") from None
    style = _style(term, found.text, found.name)
    return RewardSpec(
        name=term.function,
        source=found.module or found.file,
        function=found.name,
        kwargs=term.kwargs,
        # In a reward file written for EasyR1 a function named `parse` has no special meaning.
        has_parser=style == "sample" and PARSER in found.text.names,
        style=style,
        is_async=found.text.is_async(found.name),
        reads_messages=style == "trl" and _CONTENT in found.text.texts,
    )


def call_problems(term: RewardTerm) -> Iterator[Problem]:
    """Why a function that is there cannot be called with its kwargs, as far as its source shows; keys as in the term.
    Raises ValueError as resolve_rewards does."""
    definition, style = _definition(term)
    if definition is None or definition.decorator_list:  # a decorator may change the arguments
        return
    given = [*GIVEN.get(style, ())]
    if style == "trl":
        if asked := _of_the_trainer(definition, term):
            what = f"`{definition.name}` takes {', '.join(asked)} from TRL's trainer, which is not here"
            yield Problem("function", what, "let the function do without, or give the parameter a default")
        given += required_names(definition)  # columns of the rows, or named just now
    name = "" if is_user_function(term.function) else term.function  # a built-in's file has EasyR1's name for it
    yield from argument_problems(definition, term.kwargs, takes_input=style not in GIVEN, given=given, name=name)


def wanted_columns(term: RewardTerm) -> list[str]:
    """The columns that a function in TRL's form cannot do without. Raises ValueError as resolve_rewards does."""
    definition, style = _definition(term)
    if definition is None or definition.decorator_list or style != "trl":
        return []
    given = {*GIVEN[style], *TRL_TRAINERS, *term.kwargs}
    return [name for name in required_names(definition) if name not in given]


def _definition(term: RewardTerm) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | None, Style]:
    """The definition of a function, None where it is elsewhere, and how the function is called."""
    if is_user_function(term.function):
        spec = _resolve_file(term)
        return find_function(term.function).text.functions.get(spec.function), spec.style
    return read_source(_FOLDER / f"{term.function}.py").functions[BUILTIN_FUNCTION], "sample"


def _of_the_trainer(definition: ast.FunctionDef | ast.AsyncFunctionDef, term: RewardTerm) -> list[str]:
    """What a function in TRL's form must have from the trainer: parameters without a default, keys that it reads."""
    read = {
        node.slice.value
        for node in ast.walk(definition)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    }
    wanted = {*required_names(definition), *read} - term.kwargs.keys()
    return [name for name in TRL_TRAINERS if name in wanted]


def _style(term: RewardTerm, source: SourceText, function: str) -> Style:
    parameters = source.parameters(function)
    recognised = next((style for name, style in _STYLE_OF_PARAMETER.items() if name in parameters), None)
    if term.reward_type is not None:
        return "verl_batch" if (term.reward_type, recognised) == ("verl", "verl_batch") else term.reward_type
    if _EASYR1_TYPE not in source.names:
        return recognised or (_EASYR1_DEFAULT_TYPE if _EASYR1_NAME in source.names else "sample")
    declared = source.constants.get(_EASYR1_TYPE)
    if declared not in ("batch", "sequential"):
        raise ValueError(
            f"reward.function {term.function!r}: its REWARD_TYPE must be the text `batch` or `sequential`; "
            "or set reward_type in the config"
        )
    return "batch" if declared == "batch" else "sequential"
