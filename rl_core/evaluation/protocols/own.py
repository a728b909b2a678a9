"""The protocols of a config: its held-out rows are asked and graded as it says, whichever model answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_core.config.data import DataConfig
from rl_core.config.key_kinds import recipe_of
from rl_core.config.reward import RewardConfig
from rl_core.config.run import RunConfig
from rl_core.config.stages import EvaluationConfig
from rl_core.config.tools import ToolsConfig
from rl_core.evaluation.items import Mode
from rl_core.evaluation.protocols.protocol import Answering, Judging, Protocol
from rl_core.files import read_utf8
from rl_core.sources.columns import Columns
from rl_core.tools.toolbox import tool_schemas
from rl_core.user_code.function import find_function, is_user_function

_GRADERS = ("mathruler", "math-verify")


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnProtocol(Protocol):
    """One pass of the evaluation of a config, whose paths can be read from here."""

    config: RunConfig

    def limits(self) -> dict[str, Any]:
        """Those of the config, for videos too."""
        names = {"max_prompt_length", "min_pixels", "max_pixels", "video_fps", "video_max_frames"}
        if self.conversation is not None:
            names.add("max_source_pixels")
        return self.config.data.model_dump(include=names)

    @property
    def conversation(self) -> tuple[ToolsConfig, DataConfig] | None:
        """With the tools of the config, unless held-out rows are answered without."""
        tools = self.config.held_out_tools
        return None if tools is None else (tools, self.config.data)

    def chat(self) -> dict[str, Any]:
        """With the chat template of the config, if it has one, and the schemas of its tools."""
        data = self.config.data
        template = data.override_chat_template
        return {
            "system_prompt": data.system_prompt,
            "chat_template_kwargs": data.chat_template_kwargs,
            "chat_template": None if template is None else read_utf8(Path(template)),
            **({} if self.conversation is None else {"tools": tool_schemas(*self.conversation)}),
        }

    def record(self) -> dict[str, Any]:
        """With what is around the prompt, and how a conversation goes on; no path is in it."""
        record = Protocol.record(self) | self.chat()  # super() does not know a dataclass with slots
        if self.conversation is None:
            return record
        tools, _ = self.conversation
        recipe = recipe_of(self.config)["tools"]
        limits = {name: value for name, value in recipe.items() if name not in ("use", "environment")}
        code = {Path(written).name: _code(written) for written in tools.user_code}
        return record | {"conversation": limits | {"code": code}}

    def judged_by(self) -> dict[str, Any]:
        """Every term of the reward."""
        reward = self.config.reward
        terms = {
            key: {
                **term.model_dump(mode="json"),
                "function": Path(term.function).name,
                "code": _code(term.function),
            }
            for key, term in reward.keyed_terms()
        }
        return {"terms": terms, "grader": reward.grader}

    @property
    def answer_names(self) -> list[str]:
        """The columns that the answers come from."""
        return self.config.answer_names

    def reward_config(self) -> RewardConfig:
        """The section `reward` as it is."""
        return self.config.reward

    def evaluation_config(self) -> EvaluationConfig:
        """The section `evaluation`, of this pass alone."""
        return self.config.evaluation.model_copy(update={"modes": (self.answering.mode,)})


def _code(function: str) -> Mapping[str, str] | str:
    if is_user_function(function):
        return find_function(function).code
    return Judging(function=function, rule="").code_digest()


def own_protocols(config: RunConfig) -> list[OwnProtocol]:
    """A protocol for each pass of the evaluation of a config, whose paths can be read from here. Raises OSError or
    ValueError where the prompt template cannot be read."""
    return [_own_protocol(config, mode) for mode in config.evaluation.modes]


def _own_protocol(config: RunConfig, mode: Mode) -> OwnProtocol:
    data, evaluation, longest = config.data, config.evaluation, config.rollout.max_response_length
    sampled = Answering(
        temperature=evaluation.temperature, top_p=evaluation.top_p, n=evaluation.n, max_response_length=longest
    )
    functions = " + ".join(dict.fromkeys(Path(term.function).name for _, term in config.reward.keyed_terms()))
    protocol = OwnProtocol(
        config=config,
        name=f"{config.experiment}-{mode}",
        summary=f"the held-out rows of {config.experiment}",
        items=None,
        columns=Columns(),
        num_items=None,
        prompt="{{ content }}",
        prompt_origin="the question as it is",
        max_prompt_length=data.max_prompt_length,
        min_pixels=data.min_pixels,
        max_pixels=data.max_pixels,
        answering=sampled if mode == "sampled" else Answering(temperature=0.0, max_response_length=longest),
        judging=Judging(
            function=functions,
            packages=_GRADERS,
            accuracy_key=evaluation.accuracy_key,
            rule=f"{functions}: {evaluation.accuracy_key} of at least 0.5 is right; over all items",
        ),
        categories=evaluation.categories,
    )
    return protocol if data.prompt_template is None else protocol.with_prompt(Path(data.prompt_template))
