"""Finds the reward functions that the config names. A user's file is read as text here and never run."""

from pathlib import Path

import rl_core.rewards.builtin
from rl_core.config.reward import RewardChoice, RewardConfig, RewardTerm
from rl_core.rewards.messages import PARSER, RewardSpec, Style
from rl_core.rewards.routing import Route, Routing, Term
from rl_core.user_code.function import find_function, is_user_function
from rl_core.user_code.text import SourceText, read_source

_FOLDER = Path(rl_core.rewards.builtin.__file__).parent
BUILTIN = {path.stem: f"{rl_core.rewards.builtin.__name__}.{path.stem}" for path in sorted(_FOLDER.glob("[!_]*.py"))}
BUILTIN_FUNCTION = "compute_score"

_GRADER = "grader"
_EASYR1_TYPE, _EASYR1_NAME = "REWARD_TYPE", "REWARD_NAME"
_EASYR1_DEFAULT_TYPE: Style = "batch"


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
    style = _style(term, found.text)
    return RewardSpec(
        name=term.function,
        source=found.module or found.file,
        function=found.name,
        kwargs=term.kwargs,
        # In a reward file written for EasyR1 a function named `parse` has no special meaning.
        has_parser=style == "sample" and PARSER in found.text.names,
        style=style,
        is_async=found.text.is_async(found.name),
    )


def _style(term: RewardTerm, source: SourceText) -> Style:
    if term.reward_type is not None:
        return term.reward_type
    if _EASYR1_TYPE not in source.names:
        return _EASYR1_DEFAULT_TYPE if _EASYR1_NAME in source.names else "sample"
    declared = source.constants.get(_EASYR1_TYPE)
    if declared not in ("batch", "sequential"):
        raise ValueError(
            f"reward.function {term.function!r}: its REWARD_TYPE must be the text `batch` or `sequential`; "
            "or set reward_type in the config"
        )
    return "batch" if declared == "batch" else "sequential"
