"""Rules between the values of the reward's section."""

import difflib
from collections import Counter
from collections.abc import Iterator

from rl_core.config.reward import RewardChoice
from rl_core.config.run import RunConfig
from rl_core.planning.reward_components import COMPONENTS, components_of
from rl_core.problem import Problem
from rl_core.user_code.function import is_user_function
from rl_core.wording import shortened

_GRADED = ("math", "r1v")
_LENGTH_LIMIT = "max_response_length"


def reward_problems(config: RunConfig) -> Iterator[Problem]:
    """Every rule that the config breaks."""
    reward = config.reward
    for key, choice in reward.choices():
        yield from _choice_problems(key, choice, is_optional=key == "reward" and bool(reward.by_source))
    yield from _unknown_problems(config)
    yield from _component_problems(config)
    functions = {term.function for _, term in reward.keyed_terms()}
    if reward.grader is not None and not functions & set(_GRADED):
        yield Problem(
            where="reward.grader",
            what=f"no configured reward uses {reward.grader}; only {' and '.join(_GRADED)} do",
            fix="set it to null, or use one of these rewards",
        )
    yield from _limit_problems(config)


def _choice_problems(key: str, choice: RewardChoice, *, is_optional: bool) -> Iterator[Problem]:
    if choice.function is not None and choice.mixture:
        yield Problem(
            where=f"{key}.mixture",
            what="a function and a mixture are both given",
            fix=f"make {choice.function} a part of the mixture, and {key}.function null",
        )
    if not choice.terms and not is_optional:
        yield Problem(where=f"{key}.function", what="no function is named", fix=f"set {key}.function or {key}.mixture")
    if choice.function is None and (choice.kwargs or choice.reward_type):
        yield Problem(
            where=f"{key}.kwargs",
            what="there is no function for kwargs or reward_type",
            fix="give them to the parts of the mixture",
        )
    yield from _mixture_problems(key, choice)


def _mixture_problems(key: str, choice: RewardChoice) -> Iterator[Problem]:
    for name, count in Counter(term.label for term in choice.mixture).items():
        if count > 1:
            yield Problem(
                where=f"{key}.mixture",
                what=f"{count} of its functions are called {name!r}, so their components cannot be told apart",
                fix="give each a name of its own",
            )
    if choice.mixture and all(term.weight == 0.0 for term in choice.mixture):
        yield Problem(
            where=f"{key}.mixture",
            what="every weight is 0, so every reward would be 0",
            fix="give a weight to one of them",
        )


def _limit_problems(config: RunConfig) -> Iterator[Problem]:
    """A limit of the overlong penalty that is not the limit of responses. The penalty gets it as an argument, as
    published."""
    limit = config.rollout.max_response_length
    for key, term in config.reward.keyed_terms():
        told = term.kwargs.get(_LENGTH_LIMIT)
        if term.function in ("dapo", "overlong") and told is not None and told != limit:
            yield Problem(
                where=key,
                what=f"its {_LENGTH_LIMIT} is {told}, and responses end at rollout.{_LENGTH_LIMIT} {limit}",
                fix=f"set kwargs.{_LENGTH_LIMIT} to {limit}",
                fatal=False,
            )


def _unknown_problems(config: RunConfig) -> Iterator[Problem]:
    for key, term in config.reward.keyed_terms():
        if term.function not in COMPONENTS and not is_user_function(term.function):
            close = difflib.get_close_matches(term.function, COMPONENTS, n=1, cutoff=0.5)
            there = f"did you mean {close[0]}?" if close else f"there is {', '.join(COMPONENTS)}"
            yield Problem(
                where=key,
                what=f"{shortened(term.function)!r} is no built-in reward; {there}",
                fix="correct the name; a function of your own is written path/to/file.py:function",
            )


def _component_problems(config: RunConfig) -> Iterator[Problem]:
    """Components that the config asks for and that a reward never returns, as far as that is known without calling
    it."""
    read = {"evaluation.accuracy_key": config.evaluation.accuracy_key}
    filtering = config.algorithm.online_filtering
    if filtering is not None and filtering.component is not None:
        read["algorithm.online_filtering.filter_key"] = filtering.component
    for key, choice in config.reward.choices():
        returned = components_of(choice) if choice.terms else None
        for reader, component in read.items():
            if returned is not None and component not in returned:
                yield Problem(
                    where=reader,
                    what=f"{key} never returns a component {component!r}; it returns {', '.join(returned)}",
                    fix="name one of them",
                )
