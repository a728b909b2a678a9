"""The protocols of a config: what its digest depends on, and what not."""

from dataclasses import replace
from pathlib import Path

import pytest

from rl_core.config.loading import config_of
from rl_core.config.run import RunConfig
from rl_core.digests import hash_file
from rl_core.evaluation.protocols.own import own_protocols

REWARD = "def grade(sample, scale=1.0):\n    return {'overall': scale, 'accuracy': scale}\n"


def config_in(folder: Path, *overrides: str, reward: str = REWARD, prompt: str = "{{ content }} Say it.") -> RunConfig:
    folder.mkdir(exist_ok=True)
    (folder / "reward.py").write_text(reward)
    (folder / "prompt.jinja").write_text(prompt)
    rows = {"type": "counting", "size": 4, "scene_seed": 1}
    tree = {
        "experiment": "own",
        "data": {"train": rows, "validation": rows, "prompt_template": f"{folder}/prompt.jinja"},
        "model": {"source": {"type": "tiny", "family": "qwen2_5_vl"}},
        "reward": {"function": f"{folder}/reward.py:grade"},
        "evaluation": {"n": 3},
    }
    return config_of(tree, overrides, "a test")


def digests(config: RunConfig) -> list[str]:
    return [protocol.digest() for protocol in own_protocols(config)]


def test_each_pass_is_a_protocol_that_asks_as_the_config_says(tmp_path):
    config = config_in(tmp_path, "data.system_prompt=Be brief.", "data.video_fps=1", "evaluation.limit=2")
    greedy, sampled = own_protocols(config)
    assert (greedy.name, sampled.name) == ("own-greedy", "own-sampled")
    assert [protocol.evaluation_config().modes for protocol in (greedy, sampled)] == [("greedy",), ("sampled",)]
    assert (greedy.answering.n, sampled.answering.n, sampled.evaluation_config().limit) == (1, 3, 2)
    assert greedy.prompt == "{{ content }} Say it."
    assert greedy.chat()["system_prompt"] == "Be brief." and greedy.limits()["video_fps"] == 1
    assert greedy.reward_config() == config.reward
    assert own_protocols(config_in(tmp_path, "data.prompt_template=null"))[0].prompt == "{{ content }}"


def test_the_digest_does_not_depend_on_where_the_files_lie(tmp_path):
    assert digests(config_in(tmp_path / "here")) == digests(config_in(tmp_path / "there", "seed=5", "actor.optim.lr=1"))


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "{{ content }} Say it!"},
        {"reward": REWARD + "\n"},
        "reward.kwargs={scale: 2}",
        "reward={function: count}",
        "reward={mixture: [{function: count}, {function: length, weight: 0.5}]}",
        "data.system_prompt=Be brief.",
        "data.chat_template_kwargs={thinking: false}",
        "data.max_pixels=5000",
        "data.video_fps=1",
        "rollout.max_response_length=9",
        "evaluation.accuracy_key=overall",
        "tools={use: [calculator]}",
    ],
    ids=str,
)
def test_every_setting_that_moves_a_number_moves_the_digest(tmp_path, change):
    changed = config_in(tmp_path / "b", change) if isinstance(change, str) else config_in(tmp_path / "b", **change)
    assert not set(digests(changed)) & set(digests(config_in(tmp_path / "a")))


LOOK = '''
def look(at: int) -> str:
    """Look.

    Args:
        at: Where.
    """
'''


def test_tools_move_the_digest_where_they_are_used(tmp_path):
    def of(*overrides: str) -> list[str]:
        return digests(config_in(tmp_path, *overrides))

    used = "tools={use: [calculator]}"
    first = of(used)
    assert of(used, "tools.workers=3") == first
    assert of(used, "evaluation.tools=none") == of()
    found = [first, of(used, "tools.max_turns=3"), of(used, "tools.max_result_length=99")]
    assert len({one for each in found for one in each}) == 6
    code = tmp_path / "look.py"
    code.write_text(LOOK)
    (protocol, _) = own_protocols(config_in(tmp_path, f"tools={{use: ['{code}:look']}}"))
    assert protocol.record()["conversation"]["code"] == {"look.py:look": {"look.py": hash_file(code)}}


def test_another_chat_template_is_another_protocol(tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages[0].content }}")
    config = config_in(tmp_path, f"data.override_chat_template={template}")
    (first, _) = own_protocols(config)
    assert first.chat()["chat_template"] == "{{ messages[0].content }}"
    plain = config.model_copy(update={"data": config.data.model_copy(update={"override_chat_template": None})})
    assert replace(first, config=plain).digest() != first.digest()
