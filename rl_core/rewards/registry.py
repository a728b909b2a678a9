"""From the reward's section of the config to what the scoring processes load. Nothing of a user's file runs here."""

import difflib
from collections.abc import Iterable
from pathlib import Path

import rl_core.rewards.builtin
from rl_core.config.reward import RewardChoice, RewardConfig, RewardTerm
from rl_core.rewards.reading import SourceText, read_source
from rl_core.rewards.routing import Route, Routing, Term
from rl_core.rewards.spec import PARSER, RewardSpec, Style

_FOLDER = Path(rl_core.rewards.builtin.__file__).parent
BUILTIN = {path.stem: f"{rl_core.rewards.builtin.__name__}.{path.stem}" for path in sorted(_FOLDER.glob("[!_]*.py"))}
BUILTIN_FUNCTION = "compute_score"

_GRADER = "grader"
_EASYR1_TYPE, _EASYR1_NAME = "REWARD_TYPE", "REWARD_NAME"
_EASYR1_DEFAULT_TYPE: Style = "batch"


def resolve_rewards(config: RewardConfig) -> Routing:
    """Find every configured function. A user's file is read as text and never imported in this process.

    Raises:
        ValueError: no such built-in, no such file, a file that is no Python, no such function in it, or a REWARD_TYPE
            that is none; a line a problem, naming it and the nearest thing there is.
    """
    specs: list[RewardSpec] = []
    routes: dict[str, Route] = {}
    problems: list[str] = []
    for key, choice in config.choices():
        try:
            if choice.terms:
                routes[key] = _route(choice, config, specs)
        except ValueError as error:
            problems.append(str(error))
    if not routes and not problems:
        problems.append("reward names no function: set reward.function, reward.mixture or reward.by_source")
    if problems:
        raise ValueError("\n".join(dict.fromkeys(problems)))
    fallback = routes.pop("reward", None)
    by_source = {key.removeprefix("reward.by_source."): route for key, route in routes.items()}
    return Routing(specs=specs, by_source=by_source, fallback=fallback)


def _route(choice: RewardChoice, config: RewardConfig, specs: list[RewardSpec]) -> Route:
    """The route of a choice, whose new functions are added to `specs`."""
    resolved = [resolve_function(term, grader=config.grader) for term in choice.terms]
    terms = [
        Term(lane=_lane_of(spec, specs), name=term.label, weight=term.weight)
        for term, spec in zip(choice.terms, resolved, strict=True)
    ]
    reader = next((place for place, spec in enumerate(resolved) if spec.has_parser), None)
    return Route(terms=terms, is_mixture=choice.function is None, reader=reader)


def _lane_of(spec: RewardSpec, specs: list[RewardSpec]) -> int:
    """Its place in `specs`, to which a new one is added. Arguments that are equal and differ in type (1, 1.0 and true)
    are not the same."""
    for lane, known in enumerate(specs):
        if repr(known) == repr(spec):
            return lane
    specs.append(spec)
    return len(specs) - 1


def resolve_function(term: RewardTerm, *, grader: str | None) -> RewardSpec:
    """Find one function; `grader` goes to a built-in that takes one. Raises ValueError as resolve_rewards does."""
    name = term.function
    if ":" in name or "/" in name or name.endswith(".py"):
        return _resolve_file(term)
    if name not in BUILTIN:
        raise ValueError(
            f"reward.function {name!r} is no built-in reward{_nearest(name, BUILTIN)}; "
            "for one of your own write path/to/file.py:function"
        )
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
    path_text, separator, function = term.function.rpartition(":")
    if not separator or not path_text.endswith(".py") or not function:
        raise ValueError(f"reward.function {term.function!r} must read path/to/file.py:function")
    path = Path(path_text).resolve()
    if not path.is_file():
        raise ValueError(f"reward.function {term.function!r}: there is no file {path}")
    source = read_source(path)
    if not source.may_define(function):
        hint = _nearest(function, sorted(source.names))
        raise ValueError(f"reward.function {term.function!r}: {path} defines no `{function}`{hint}")
    style = _style(term, source)
    return RewardSpec(
        name=term.function,
        source=path,
        function=function,
        kwargs=term.kwargs,
        # A function of that name in a file of EasyR1's may be anything.
        has_parser=style == "sample" and PARSER in source.names,
        style=style,
        is_async=source.is_async(function),
    )


def _style(term: RewardTerm, source: SourceText) -> Style:
    """EasyR1's interface where the config or the file says so. A file that names REWARD_NAME alone is of its default
    type."""
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


def _nearest(name: str, names: Iterable[str]) -> str:
    names = list(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f" (there is {', '.join(names)})" if names else ""
