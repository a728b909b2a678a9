"""Problems of small texts that a config contains or names: templates, reward functions, the name of a protocol."""

from collections.abc import Iterator
from pathlib import Path

from rl_core.config.run import RunConfig
from rl_core.data.prompts import PromptTemplate
from rl_core.files import read_utf8
from rl_core.problem import Problem
from rl_core.rewards.registry import resolve_function
from rl_core.templates import check_chat_template, target_template
from rl_core.user_code.function import is_user_function


def text_problems(config: RunConfig) -> list[Problem]:
    """Problems that the texts themselves show. No code of the user is run."""
    return [*_template_problems(config), *_reward_problems(config), *_protocol_problems(config)]


def _template_problems(config: RunConfig) -> Iterator[Problem]:
    data, cold_start = config.data, config.cold_start
    try:
        PromptTemplate.load(data.prompt_template)
    except ValueError as error:
        what = str(error).removeprefix(f"data.prompt_template {data.prompt_template}: ")
        yield Problem(where="data.prompt_template", what=what, fix=f"correct {data.prompt_template}")
    if data.override_chat_template is not None:
        try:
            check_chat_template(read_utf8(Path(data.override_chat_template)))
        except (ValueError, OSError) as error:
            path = data.override_chat_template
            yield Problem(where="data.override_chat_template", what=f"the template {error}", fix=f"correct {path}")
    if cold_start is not None:
        key = "cold_start.target_template"
        try:
            target_template(cold_start.target_template)
        except ValueError as error:
            what = str(error).removeprefix(f"{key} ")
            yield Problem(where=key, what=f"it {what}", fix="correct it")


def _reward_problems(config: RunConfig) -> Iterator[Problem]:
    for key, term in config.reward.keyed_terms():
        if not is_user_function(term.function):
            continue  # rl_core.planning checks the built-in rewards
        try:
            resolve_function(term, grader=config.reward.grader)
        except ValueError as error:
            what = str(error).removeprefix(f"reward.function {term.function!r}").removeprefix(":").strip()
            yield Problem(where=key, what=what, fix="correct the path, the function's name or the file")


def _protocol_problems(config: RunConfig) -> Iterator[Problem]:
    if config.published is None:
        return
    # Imported here: few configs publish a number, and the protocols import the modules of the evaluation.
    from rl_core.evaluation.protocols.registry import protocol_named

    try:
        protocol_named(config.published.protocol)
    except ValueError as error:
        yield Problem(where="published.protocol", what=str(error), fix="name a protocol with its version")
