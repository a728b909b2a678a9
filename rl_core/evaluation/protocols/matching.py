"""Does the evaluation of a run follow a protocol?"""

from collections.abc import Iterator
from pathlib import Path

from rl_core.config.run import RunConfig
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.sources.hub import HubSource

_DEFAULT_GRADER = "mathruler"


def departures(config: RunConfig, protocol: Protocol) -> list[str]:
    """Where the evaluation of a config differs from a protocol, a sentence each; empty when it follows the protocol.
    Raises OSError when the config's prompt template cannot be read."""
    return [*_of_asking(config, protocol), *_of_answering(config, protocol), *_of_judging(config, protocol)]


def _of_asking(config: RunConfig, protocol: Protocol) -> Iterator[str]:
    data = config.data
    text = None if data.prompt_template is None else Path(data.prompt_template).read_text(encoding="utf-8").strip()
    if text != protocol.prompt.strip():
        yield f"the prompt text of {data.prompt_template} is not the protocol's"
    for name in ("min_pixels", "max_pixels", "max_prompt_length"):
        ours, theirs = getattr(data, name), getattr(protocol, name)
        if ours != theirs:
            yield f"data.{name} is {ours}, the protocol's {theirs}"
    if data.system_prompt is not None:
        yield "data.system_prompt adds a system message"
    if protocol.items is not None and not _is_same_set(config, protocol.items):
        yield f"data.validation is not {protocol.items.name}"
    if config.evaluation.limit is not None:
        yield f"evaluation.limit takes {config.evaluation.limit} items"


def _is_same_set(config: RunConfig, items: HubSource) -> bool:
    source = config.data.validation
    return isinstance(source, HubSource) and source.name == items.name and source.limit is None


def _of_answering(config: RunConfig, protocol: Protocol) -> Iterator[str]:
    evaluation, answering = config.evaluation, protocol.answering
    if evaluation.modes[0] != answering.mode:
        yield f"evaluation.modes starts with {evaluation.modes[0]}, the protocol is {answering.mode}"
    names = ("n", "temperature", "top_p") if answering.mode == "sampled" else ()
    for name in names:
        ours, theirs = getattr(evaluation, name), getattr(answering, name)
        if ours != theirs:
            yield f"evaluation.{name} is {ours}, the protocol's {theirs}"
    if config.rollout.max_response_length != answering.max_response_length:
        yield (
            f"rollout.max_response_length is {config.rollout.max_response_length}, "
            f"the protocol's {answering.max_response_length}"
        )


def _of_judging(config: RunConfig, protocol: Protocol) -> Iterator[str]:
    judging = protocol.judging
    if config.reward.function != judging.function:
        yield f"reward.function is {config.reward.function}, the protocol's {judging.function}"
    grader = config.reward.kwargs.get("grader", config.reward.grader or _DEFAULT_GRADER)
    if grader != judging.kwargs.get("grader", grader):
        yield f"reward.grader is {grader}, the protocol's {judging.kwargs['grader']}"
    if config.evaluation.accuracy_key != judging.accuracy_key:
        yield f"evaluation.accuracy_key is {config.evaluation.accuracy_key}, the protocol's {judging.accuracy_key}"
