"""Rules between a config and the tokens of its model: what ends a response, and texts that would change the form of a
chat."""

from collections.abc import Iterator
from pathlib import Path

from rl_core.config.model import TinyModel
from rl_core.config.run import RunConfig
from rl_core.families.registry import FAMILIES
from rl_core.files import read_utf8
from rl_core.planning.model_sizes import checkpoint_folder
from rl_core.planning.model_tokens import ModelTokens
from rl_core.problem import Problem


def token_problems(config: RunConfig) -> Iterator[Problem]:
    """The problems before there is a run; none with a checkpoint of the hub that was never downloaded, which shows them
    when it is (`problems_with_tokens`)."""
    try:
        tokens = _planned_tokens(config)
    except (ValueError, OSError) as error:
        yield Problem("model.source", f"{error}", "copy or download the model again")
        return
    if tokens is not None:
        yield from problems_with_tokens(config, tokens)


def problems_with_tokens(config: RunConfig, tokens: ModelTokens) -> Iterator[Problem]:
    """The problems with a model of these tokens. A text of the config that holds a control token is one problem, and no
    bad row."""
    if tokens.vocabulary:
        yield from _end_problems(tokens)
    for key, text in _texts(config).items():
        try:
            tokens.check_text(text or "", name="it")
        except ValueError as error:
            yield Problem(key, f"{error}", "write the text alone: the chat template adds what begins and ends turns")
    if not isinstance(config.model.source, TinyModel):
        yield from _variable_problems(config, tokens.chat_template or "")


def _variable_problems(config: RunConfig, chat_template: str) -> Iterator[Problem]:
    for name in config.data.chat_template_kwargs:
        if name not in chat_template:
            what = f"the chat template has no variable {name!r}, so it changes nothing"
            yield Problem("data.chat_template_kwargs", what, "correct its name, or leave it out")


def _end_problems(tokens: ModelTokens) -> Iterator[Problem]:
    key, fix = "model.source", "name the token that ends a turn as eos_token_id in its generation_config.json"
    try:
        ends = tokens.response_ends()
    except ValueError as error:
        yield Problem(key, str(error), fix)
        return
    if ends.difference is not None:
        yield Problem(
            key,
            f"{ends.difference}; each of them ends one here, where it can be sampled",
            "write all of them as eos_token_id in its generation_config.json, for other software too",
            fatal=False,
        )


def _planned_tokens(config: RunConfig) -> ModelTokens | None:
    source, template = config.model.source, _text_of(config.data.override_chat_template)
    if isinstance(source, TinyModel):
        return ModelTokens.of_tiny(FAMILIES[source.family], chat_template=template)
    folder = checkpoint_folder(source)
    return None if folder is None else ModelTokens.read(folder, chat_template=template)


def _texts(config: RunConfig) -> dict[str, str | None]:
    """[key] -> a text of the config that goes into a prompt or a target."""
    return {
        "data.system_prompt": config.data.system_prompt,
        "data.prompt_template": _text_of(config.data.prompt_template),
        "cold_start.target_template": config.cold_start.target_template if config.cold_start else None,
    }


def _text_of(path: str | None) -> str | None:
    """The text of a file; None where it cannot be read, which the rules of templates name."""
    try:
        return None if path is None else read_utf8(Path(path))
    except (ValueError, OSError):
        return None
