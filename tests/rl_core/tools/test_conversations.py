"""Rounds of turns: what follows from a model's calls, whatever the order in which turns are finished."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.data.chat import ChatRenderer, Media
from rl_core.data.images import ImageStore, ImageStoreWriter
from rl_core.image_sizes import ImageSizes
from rl_core.isolation.failed_share import TooManyFailures
from rl_core.progress import TALLY
from rl_core.rewards.sample import RewardSample
from rl_core.tools.conversations import Conversations
from rl_core.tools.isolated_tools import IsolatedTools
from rl_core.tools.journal import Journal
from rl_core.tools.tool import Picture
from rl_core.tools.toolbox import Answer, tool_schemas
from rl_core.tools.turns import TurnRenderer
from rl_core.types import (
    EnvironmentOpening,
    Further,
    GenerationRequest,
    Group,
    Prompt,
    RequestFeed,
    Requests,
    Rollout,
    RolloutStream,
    Sampling,
    ToolCall,
)
from tests.rl_core.models.builders import write_small_model

SAMPLING = Sampling(temperature=1.0, max_tokens=99)
DATA = DataConfig.model_validate(
    {name: {"type": "counting", "size": 8, "scene_seed": 1} for name in ("train", "validation")}
    | {"min_pixels": 784, "max_pixels": 3136, "max_source_pixels": 99_999}
)


def call(tool: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


ADD = call("calculator", expression="1 + 2")
LOOK = call("zoom", x1=0, y1=0, x2=28, y2=56)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("run")
    (home / "data").mkdir()
    with ImageStoreWriter(home / "data" / "images"):
        pass
    (home / "model").mkdir()
    return write_small_model(home / "model", "qwen2_5_vl")


class Talk:
    """The conversations of a model that says what is written for it; turns are finished in any order."""

    def __init__(
        self, folder: Path, *, isolated: IsolatedTools | None = None, template: str | None = None, **tools: Any
    ) -> None:
        self.tools = ToolsConfig.model_validate({"use": ["calculator", "zoom"]} | tools)
        schemas = tool_schemas(self.tools, DATA)
        self.chat = ChatRenderer(
            folder, prompt_template=None, system_prompt=None, tools=schemas, chat_template=template
        )
        images = None if isolated is None else ImageStore(folder.parent / "data" / "images")
        self.conversations = Conversations(self.tools, DATA, self.chat, isolated=isolated, images=images)
        self.rounds: list[list[GenerationRequest]] = []

    def prompt(self, uid: str = "a") -> Prompt:
        (rendered,) = self.chat.render_all(["<image>What?"], [Media([(56, 56)])], histories=[[]])
        return Prompt(
            uid=uid, data_source="", question="", text=rendered.text, answer="", token_ids=rendered.token_ids,
            engine_token_ids=rendered.engine_token_ids, image_uids=("one",),
            image_sizes=(ImageSizes(original=(224, 224), shown=(56, 56)),),
        )  # fmt: skip

    def ids(self, said: str, *, cut: bool = False) -> np.ndarray[Any, np.dtype[np.int32]]:
        ends = "" if cut else "<|im_end|>"
        return np.array(self.chat.tokenizer.encode(said + ends, add_special_tokens=False), np.int32)

    def responses(self, scripts: Sequence[Sequence[str]], *, order: int = 0, cut: bool = False) -> list[Rollout]:
        """One response for each script, which has a text for each turn."""

        draw = random.Random(order)

        def generate(requests: Requests, sampling: Sampling) -> RolloutStream:
            further: Further | None = None
            if isinstance(requests, RequestFeed):
                requests, further = requests.first, requests.further
            waiting = [*requests]
            self.rounds.append([*requests])
            while waiting or further is not None:
                if further is not None and (came := further()) is not None:
                    waiting += came
                elif further is not None:
                    further = None
                if waiting:
                    yield said(waiting.pop(draw.randrange(len(waiting))))

        def said(request: GenerationRequest) -> Rollout:
            before = int(request.prompt.uid.rpartition("/")[2]) if "/" in request.prompt.uid else 0
            text = scripts[request.sample_index][before]
            ids = self.ids(text, cut=cut)
            return Rollout(
                prompt_uid=request.prompt.uid, sample_index=request.sample_index, response_ids=ids, text=text,
                log_probs=np.full(len(ids), -1 - before, np.float32), policy_version=3,
                finish_reason="length" if cut else "stop",
            )  # fmt: skip

        self.rounds = []
        prompt = self.prompt()
        requests = [GenerationRequest(prompt=prompt, sample_index=n, seed=n, group_seed=3) for n in range(len(scripts))]
        found = list(self.conversations(generate, 3)(requests, SAMPLING))
        assert {one.key for one in found} == {("a", number) for number in range(len(scripts))}
        return sorted(found, key=lambda one: one.sample_index)


def test_a_response_is_what_the_model_sampled_and_its_text_is_the_last_turn(folder: Path) -> None:
    talk = Talk(folder)
    (one,) = talk.responses([[f"Let me see. {ADD}", "<answer>3</answer>"]])
    first, last = talk.ids(f"Let me see. {ADD}"), talk.ids("<answer>3</answer>")
    assert one.response_ids.tolist() == [*first, *last]
    assert one.log_probs.tolist() == [-1.0] * len(first) + [-2.0] * len(last)
    assert (one.text, one.finish_reason, one.policy_version) == ("<answer>3</answer>", "stop", 3)
    (put,) = one.insertions
    assert put.after == len(first)
    assert put.turn == f"Let me see. {ADD}"
    ((made,),) = ((c for c in put.calls),)
    assert (made.name, json.loads(made.arguments), made.result, made.outcome) == (
        "calculator", {"expression": "1 + 2"}, "3", "answered",
    )  # fmt: skip


def test_the_next_request_is_the_chat_as_its_template_writes_it(folder: Path) -> None:
    """Where the model's tokens are those of its text. Prompt, turns and results are appended, and the engine gets each
    image once."""
    talk = Talk(folder)
    (one,) = talk.responses([[LOOK + ADD, "<answer>3</answer>"]])
    asked = talk.rounds[1][0].prompt
    (put,) = one.insertions
    messages = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": LOOK + ADD},
        {"role": "tool", "content": [{"type": "image"}]},
        {"role": "tool", "content": "3"},
    ]
    (rendered,) = talk.chat.tokenised([talk.chat.chat(messages)], [Media([(56, 56), (39, 79)])])
    assert talk.chat.tokenizer.decode(asked.engine_token_ids) == rendered.text
    assert len(asked.token_ids) == len(asked.engine_token_ids) - 2 + sum(
        len(talk.chat.vision.of_image(*size)) for size in ((56, 56), _size(put.image_uids[0]))
    )
    assert asked.image_uids == ("one", *put.image_uids)


def _size(uid: str) -> tuple[int, int]:
    width, height = uid.rpartition("-")[2].split("x")
    return int(width), int(height)


def test_sampled_tokens_are_never_tokenised_again(folder: Path) -> None:
    """A turn of single letters stays one."""
    talk = Talk(folder)
    letters = talk.ids
    spelled = np.concatenate([[*letters(letter, cut=True)] for letter in ADD] + [talk.ids("")]).astype(np.int32)
    assert len(spelled) > len(letters(ADD))
    talk.ids = lambda said, cut=False: spelled if said == ADD else letters(said, cut=cut)  # type: ignore[method-assign]
    (one,) = talk.responses([[ADD, "done"]])
    assert talk.rounds[1][0].prompt.token_ids[: -len(one.insertions[0].token_ids)].tolist()[-len(spelled) :] == [
        *spelled
    ]


@given(order=st.integers(0, 99), turns=st.lists(st.sampled_from([ADD, LOOK, LOOK + ADD]), max_size=3))
@settings(max_examples=20, deadline=None)
def test_the_order_in_which_turns_are_finished_changes_nothing(folder: Path, order: int, turns: list[str]) -> None:
    scripts = [[*turns[: number % (len(turns) + 1)], "<answer>3</answer>"] for number in range(5)]
    talk, other = Talk(folder), Talk(folder)
    one, two = talk.responses(scripts), other.responses(scripts, order=order)
    assert [repr(rollout) for rollout in one] == [repr(rollout) for rollout in two]
    assert [[r.seed for r in requests] for requests in talk.rounds] == [[r.seed for r in rs] for rs in other.rounds]
    keys = [[(r.sample_index, r.prompt.uid) for r in requests] for requests in talk.rounds]
    assert keys == [sorted(own) for own in keys]
    seeds = [request.seed for requests in talk.rounds for request in requests]
    assert len(set(seeds)) == len(seeds)
    before = TALLY.copy()
    flowing = Talk(folder, schedule="continuous").responses(scripts, order=order)
    assert [repr(rollout) for rollout in flowing] == [repr(rollout) for rollout in one]
    assert TALLY.since(before).responses == -sum(len(rollout.insertions) for rollout in one)


def test_a_model_that_always_calls_ends_by_its_turns(folder: Path) -> None:
    (one,) = Talk(folder, max_turns=3).responses([[ADD] * 9])
    assert (one.finish_reason, len(one.insertions), one.text) == ("turns", 2, ADD)


def test_responses_are_counted_and_not_their_turns(folder: Path) -> None:
    """The generator here counts none."""
    before = TALLY.copy()
    Talk(folder).responses([[ADD, ADD, "3"], ["3"]])
    assert TALLY.since(before).responses == -2


def test_a_turn_that_is_cut_ends_the_conversation(folder: Path) -> None:
    (one,) = Talk(folder).responses([[ADD]], cut=True)
    assert (one.finish_reason, one.insertions) == ("length", ())


def test_a_mistake_is_told_and_the_model_goes_on(folder: Path) -> None:
    talk = Talk(folder, max_calls_per_turn=4, max_images=1)
    wrong = ["<tool_call>{", call("dance"), call("calculator", formula="1"), LOOK, call("zoom", x1=0, y1=0, x2=9, y2=9)]
    one, two = talk.responses([["".join([*wrong[1:], ADD, ADD]), "3"], [wrong[0], "3"]])
    made = [*one.insertions[0].calls, *two.insertions[0].calls]
    assert [made.outcome for made in made] == [
        "invalid",
        "invalid",
        "answered",
        "invalid",
        "invalid",
        "invalid",
        "invalid",
    ]
    for found, words in zip(
        made, ["no tool 'dance'", "expression", "[image", "at most 1 images", "only 4 calls", "only 4 calls", "JSON"],
        strict=True,
    ):  # fmt: skip
        assert words in found.result


def test_results_are_cut_in_text_alone(folder: Path) -> None:
    """At whatever token the limit lies: no image is cut, and what does not fit at all ends the conversation."""
    long = call("calculator", expression="9 ** 99")
    whole = [len(one.insertions[0].token_ids) for one in Talk(folder).responses([[long * 2, "3"], [LOOK + long, "3"]])]
    ends = set()
    for limit in range(16, max(whole) + 2):
        talk = Talk(folder, max_result_length=limit)
        for one, length in zip(talk.responses([[long * 2, "3"], [LOOK + long, "3"]]), whole, strict=True):
            ends.add(one.finish_reason)
            assert bool(one.insertions) == (one.finish_reason == "stop")
            for put in one.insertions:
                assert len(put.token_ids) <= limit
                assert ("(cut)" in talk.chat.tokenizer.decode(put.token_ids)) == (length > limit)
                places = (put.token_ids == talk.chat.vision.image_token_id).sum()
                assert places == sum(len(talk.chat.vision.of_image(*_size(uid))) for uid in put.image_uids)
    assert ends == {"stop", "length"}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "token of its own"),
        (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content if m.content is string }}<|im_end|>\n"
            "{% endfor %}",
            "0 places for the image",
        ),
        (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
            "<|vision_start|><|image_pad|><|vision_end|>{% endif %}<|im_end|>\n{% endfor %}",
            "another form",
        ),
    ],
)
def test_a_template_that_cannot_carry_a_conversation_is_named(folder: Path, template: str, words: str) -> None:
    tools = ToolsConfig(use=("calculator",))
    chat = ChatRenderer(
        folder, prompt_template=None, system_prompt=None, chat_template=template, tools=tool_schemas(tools, DATA)
    )
    with pytest.raises(ValueError, match=words):
        Conversations(tools, DATA, chat)


QWEN2_VL = Path(__file__).parents[3] / "configs" / "chat_templates" / "qwen2_vl_tools.jinja"


@pytest.mark.parametrize("role", ["tool", "user"])
def test_the_template_for_qwen2_vl_carries_calls_and_the_pictures_of_their_results(folder: Path, role: str) -> None:
    talk = Talk(folder, template=QWEN2_VL.read_text(), result_role=role)
    (one,) = talk.responses([[f"Let me see. {LOOK}{ADD}", "<answer>3</answer>"]])
    (put,) = one.insertions
    assert [made.outcome for made in put.calls] == ["answered", "answered"]
    chat = talk.chat.tokenizer.decode(talk.rounds[1][0].prompt.engine_token_ids)
    picture = "<|vision_start|><|image_pad|><|vision_end|>"
    asked, _, results = chat.partition(f"Let me see. {LOOK}{ADD}<|im_end|>\n")
    assert asked.startswith("<|im_start|>system\nYou are a helpful assistant.\n\n# Tools\n")
    assert all(json.dumps(schema) in asked for schema in talk.chat.tools)
    assert asked.endswith(f"<|im_start|>user\n{picture}What?<|im_end|>\n<|im_start|>assistant\n")
    shown = {
        "tool": f"<|im_start|>user\n<tool_response>\n{picture}\n</tool_response>\n<tool_response>\n3\n</tool_response>",
        "user": f"<|im_start|>user\n{picture}<|im_end|>\n<|im_start|>user\n3",
    }[role]
    assert results == f"{shown}<|im_end|>\n<|im_start|>assistant\n"


def test_thoughts_that_the_template_leaves_out_stay_and_that_is_told(folder: Path) -> None:
    """As Qwen3's does before the last question."""
    plain = Talk(folder)
    template = plain.chat._chat_template
    content = "message['content'].split('</think>')[-1] if message['role'] == 'assistant' and not loop.last else"
    forgetful = template.replace("{{- message['content'] -}}", f"{{{{- {content} message['content'] -}}}}")
    talk = Talk(folder, template=forgetful)
    assert plain.conversations.remark is None
    assert talk.conversations.remark is not None and "what a model has thought" in talk.conversations.remark
    thought = f"<think>Why?</think>{ADD}"
    talk.responses([[thought, "3"]])
    first, second = (requests[0].prompt.token_ids.tolist() for requests in talk.rounds)
    assert second[: len(first)] == first
    assert second[len(first) :][: len(talk.ids(thought))] == talk.ids(thought).tolist()


def test_leaving_early_ends_the_generation(folder: Path) -> None:
    talk, ended = Talk(folder), []

    def generate(requests: Sequence[GenerationRequest], sampling: Sampling) -> RolloutStream:
        try:
            for request in requests:
                ids = talk.ids("3")
                yield Rollout(
                    prompt_uid=request.prompt.uid, sample_index=request.sample_index, response_ids=ids, text="3",
                    log_probs=np.zeros(len(ids), np.float32), policy_version=0, finish_reason="stop",
                )  # fmt: skip
        finally:
            ended.append(True)

    requests = [GenerationRequest(prompt=replace(talk.prompt()), sample_index=n, seed=n) for n in range(3)]
    stream = talk.conversations(generate, 0)(requests, SAMPLING)
    next(stream)
    stream.close()
    assert ended


OWN = Path(__file__).parent.parent / "tools" / "own.py"
GAMES = OWN.with_name("games.py")


def isolated_tools(home: Path, *names: str, **settings: Any) -> tuple[IsolatedTools, dict[str, Any]]:
    """A user's tools whose answers are kept in `home`, and the settings of their conversations."""
    settings = {"use": ["calculator", *(f"{OWN}:{name}" for name in names)]} | settings
    journal = Journal(home, needed_from=lambda: 0)
    config = ToolsConfig.model_validate(settings)
    return IsolatedTools(config, DATA, image_store=home, journal=journal, log_event=lambda *_, **__: None), settings


def test_tools_that_answer_in_any_order_change_nothing_and_are_not_asked_twice(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "calls"
    look = call("dawdled", file=str(file))
    scripts = [[look + ADD + look, look, "3"]] * 6

    def responses(home: Path, *, order: int, schedule: str = "rounds") -> list[str]:
        own, settings = isolated_tools(home, "dawdled", workers=2, schedule=schedule)
        with own:
            found = Talk(folder, isolated=own, **settings).responses(scripts, order=order)
        assert [len(one.insertions) for one in found] == [2] * 6
        assert f"of {found[4].sample_index}: 0." in found[4].insertions[0].calls[2].result
        return [repr(one) for one in found]

    before = TALLY.copy()
    first = responses(tmp_path / "first", order=0)
    assert TALLY.since(before).waited > 0.0
    assert sorted(file.read_text().split()) == sorted(str(index) for index in range(6) for _ in range(3))
    assert responses(tmp_path / "second", order=1) == first
    made = len(file.read_text().split())
    assert made == 36
    assert responses(tmp_path / "first", order=2) == first
    kept = tmp_path / "first" / "000003.jsonl"
    kept.write_bytes(b"".join(kept.read_bytes().splitlines(keepends=True)[:7]))
    assert responses(tmp_path / "first", order=3) == first
    assert len(file.read_text().split()) == made + 11, "only what the kill has lost is asked again"
    before, made = TALLY.copy(), len(file.read_text().split())
    assert responses(tmp_path / "flowing", order=5, schedule="continuous") == first
    assert TALLY.since(before).waited > 0.0
    assert responses(tmp_path / "flowing", order=6) == first
    assert len(file.read_text().split()) == made + 18, "the answers are known to either schedule"


SCHEDULES = pytest.mark.parametrize("schedule", ["rounds", "continuous"])


@SCHEDULES
def test_failures_are_told_in_fixed_words_and_stop_the_run_above_a_share(
    folder: Path, tmp_path: Path, schedule: str
) -> None:
    raises, fine = call("harmful", harm="raises"), call("multiplied", a=2, b=3)
    scripts = [[raises, "3"], [fine * 3, "3"]]
    limits = {"schedule": schedule, "max_failed_share": 0.25}
    own, settings = isolated_tools(tmp_path / "few", "harmful", "multiplied", **limits)
    with own:
        one, two = Talk(folder, isolated=own, **settings).responses(scripts)
        (told,) = one.insertions[0].calls
        assert (told.outcome, told.result) == ("failed", "Error: the tool failed")
        assert [made.result for made in two.insertions[0].calls] == ["6"] * 3
    limits["max_failed_share"] = 0.24
    own, settings = isolated_tools(tmp_path / "many", "harmful", "multiplied", **limits)
    with (
        own,
        pytest.raises(TooManyFailures, match=r"1 of 4 calls of tools .*tools.max_failed_share = 0.24(.|\n)*KeyError"),
    ):
        Talk(folder, isolated=own, **settings).responses(scripts)


def walking(home: Path, **settings: Any) -> tuple[IsolatedTools, dict[str, Any]]:
    return isolated_tools(home, **{"environment": f"{GAMES}:Walk", "max_images": 9, "max_turns": 6} | settings)


@SCHEDULES
def test_an_environment_keeps_the_state_of_its_conversation_and_ends_it(
    folder: Path, tmp_path: Path, schedule: str
) -> None:
    """The seed of the group has its goal in the south-west."""
    south, west, up = (call("move", direction=way) for way in ("south", "west", "up"))
    scripts = [[south, west, "never said"], [south + west, "never"], [south + up + ADD, "I am there"], ["no"]]
    own, settings = walking(tmp_path / "calls", schedule=schedule)
    with own:
        found = Talk(folder, isolated=own, **settings).responses(scripts)
    assert [(one.finish_reason, dict(one.environment)) for one in found] == [
        ("done", {"reached": 1.0, "moves": 2.0}),
        ("done", {"reached": 1.0, "moves": 2.0}),
        ("stop", {"reached": 0.0, "moves": 1.0}),
        ("stop", {"reached": 0.0, "moves": 0.0}),
    ]
    assert [len(one.insertions) for one in found] == [1, 0, 1, 0], "what is shown at the end is read by nobody"
    (put,) = found[2].insertions
    assert [made.outcome for made in put.calls] == ["answered", "invalid", "answered"]
    assert [made.result.partition(",")[0] for made in put.calls][1:] == ["Error: no such direction", "3"]
    store = ImageStore(folder.parent / "data" / "images")
    assert store.image(put.image_uids[0]).getpixel((13, 22)) == (255, 0, 0)
    assert RewardSample.of(Talk(folder).prompt(), found[0], step=1).environment == {"reached": 1.0, "moves": 2.0}


def test_a_process_that_ends_costs_its_own_turn_and_the_others_go_on(folder: Path, tmp_path: Path) -> None:
    """Also in the same process, and from what was answered before an interruption."""
    north, smell = call("move", direction="north"), call("smell")
    crash = call("crash", file=str(tmp_path / "crashed"))
    scripts = [[north, crash, north, smell, "3"], *[[north, smell, north, north, "3"]] * 3]

    def responses(home: Path) -> list[Rollout]:
        own, settings = walking(home, workers=1, max_failed_share=0.5)
        with own:
            return Talk(folder, isolated=own, **settings).responses(scripts)

    found = responses(tmp_path / "calls")
    told = [[made.result for put in one.insertions for made in put.calls] for one in found]
    assert told[0][1] == "Error: the tool failed"
    assert "move 2, " in told[0][2]
    assert "move 3, " in told[1][3]
    assert [one.environment["moves"] for one in found] == [2, 3, 3, 3]
    kept = tmp_path / "calls" / "000003.jsonl"
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(b"".join(lines[: len(lines) // 2]))
    (tmp_path / "crashed").unlink()
    assert [repr(one) for one in responses(tmp_path / "calls")] == [repr(one) for one in found]


def test_a_response_with_the_seed_of_another_gets_no_answer_of_its(folder: Path, tmp_path: Path) -> None:
    """A greedy response has the seed of the first sampled one."""
    north, east, smell = call("move", direction="north"), call("move", direction="east"), call("smell")
    own, settings = walking(tmp_path / "calls", workers=1)
    with own:
        talk = Talk(folder, isolated=own, **settings)
        (sampled,) = talk.responses([[north, north, smell, "3"]])
        (greedy,) = talk.responses([[east, north, smell, "3"]])
    (alone,) = _alone(folder, tmp_path / "alone", [[east, north, smell, "3"]])
    assert repr(greedy) == repr(alone)
    assert greedy.insertions[1].image_uids != sampled.insertions[1].image_uids


def _alone(
    folder: Path, home: Path, scripts: Sequence[Sequence[str]], *, cut: bool = False, **more: Any
) -> list[Rollout]:
    own, settings = walking(home, workers=1, **more)
    with own:
        return Talk(folder, isolated=own, **settings).responses(scripts, cut=cut)


def test_making_a_state_again_has_the_time_of_its_calls(folder: Path, tmp_path: Path) -> None:
    rest = call("rest", seconds=0.6)
    crash = call("crash", file=str(tmp_path / "crashed"))
    scripts = [[rest, rest, rest, rest, "3"], [rest, rest, rest, crash, "3"]]
    one, two = _alone(folder, tmp_path / "calls", scripts, timeout_seconds=1.5, max_failed_share=0.5)
    assert [made.outcome for put in one.insertions for made in put.calls] == ["answered"] * 4
    assert two.insertions[3].calls[0].outcome == "failed"
    assert two.environment == {"reached": 0.0, "moves": 0.0}


def test_states_that_are_too_much_together_give_way(folder: Path, tmp_path: Path) -> None:
    add = call("add")
    heavy = {"environment": f"{GAMES}:Heavy", "memory_limit_gib": 1.5, "max_failed_share": 0.0}
    found = _alone(folder, tmp_path / "calls", [[add, add, "3"]] * 40, **heavy)
    assert [dict(one.environment) for one in found] == [{"sum": 2.0}] * 40


def test_the_numbers_of_the_end_fail_as_calls_do_and_are_asked_for_at_every_end(folder: Path, tmp_path: Path) -> None:
    endless = {"environment": f"{GAMES}:Endless", "use": [], "max_turns": 2}
    with pytest.raises(TooManyFailures, match="`result` gave score, which is nan"):
        _alone(folder, tmp_path / "cut", [["never whole"]], **endless, cut=True)
    long = call("calculator", expression="9 ** 99") * 4
    (one,) = _alone(folder, tmp_path / "long", [[call("smell"), long, "3"]], max_result_length=16)
    assert (one.finish_reason, one.environment) == ("length", {"reached": 0.0, "moves": 0.0})


def test_an_environment_may_take_whole_turns(folder: Path, tmp_path: Path) -> None:
    """Random.Random(3) thinks of the number 4."""
    own, settings = isolated_tools(tmp_path, environment=f"{GAMES}:Guess", use=[], max_turns=3)
    with own:
        talk = Talk(folder, isolated=own, **settings)
        found = talk.responses([["2", "6", "4"], ["4"], ["many", "5", "6"]])
    assert [(one.finish_reason, one.environment["found"]) for one in found] == [("done", 1), ("done", 1), ("turns", 0)]
    said = [[made.result for put in one.insertions for made in put.calls] for one in found]
    assert said == [["higher", "lower"], [], ["Error: invalid literal for int() with base 10: 'many'", "lower"]]
    assert talk.chat.tools == ()


def test_numbers_that_are_none_are_a_failure(folder: Path, tmp_path: Path) -> None:
    own, settings = isolated_tools(tmp_path, environment=f"{GAMES}:Endless", use=[], max_turns=2)
    with own, pytest.raises(TooManyFailures, match="`result` gave score, which is nan"):
        Talk(folder, isolated=own, **settings).responses([["a", "b"]])


def opened(folder: Path, home: Path, game: str, scripts: list[list[str]], **more: Any) -> tuple[Talk, list[Rollout]]:
    """The responses to a prompt at whose end the environment shows something; `home` has the calls of `reset`."""
    home.mkdir(exist_ok=True)
    extra = more.pop("extra", {"home": str(home)})
    own, settings = isolated_tools(home / "calls", environment=f"{GAMES}:{game}", **more)
    with own:
        talk = Talk(folder, isolated=own, **settings)
        row = replace(talk.prompt(), extra=extra)
        talk.prompt = lambda uid="a": row  # type: ignore[method-assign]
        return talk, talk.responses(scripts)


def test_what_an_environment_shows_first_stands_at_the_end_of_the_prompt(folder: Path, tmp_path: Path) -> None:
    """The prompt is the chat as its template writes it, the same for all responses, and each response says what it
    began with."""
    look = call("look")
    talk, found = opened(folder, tmp_path, "Board", [[look, "3"], ["4"]])
    asked = talk.rounds[0][0].prompt
    first = found[0].opening
    assert first is not None and found[1].opening is first
    assert [one.prompt.text for one in talk.rounds[0]] == [asked.text] * 2
    said = first.call.result.partition(" [image")[0]
    assert said.startswith("You are at 3, luck 0.") and said.endswith("of 1.")
    parts = [{"type": "image"}, {"type": "text", "text": f"What?\n{said}"}, {"type": "image"}]
    (rendered,) = talk.chat.tokenised(
        [talk.chat.chat([{"role": "user", "content": parts}])], [Media([(56, 56), (56, 28)])]
    )
    assert asked.text == rendered.text == talk.chat.tokenizer.decode(asked.engine_token_ids)
    assert len(asked.token_ids) == len(rendered.token_ids)
    assert asked.image_uids == ("one", *first.image_uids)
    assert found[0].insertions[0].calls[0].result == "still at 3"
    group = Group.of(talk.prompt(), found)
    assert repr(group.prompt) == repr(asked)
    assert RewardSample.of(talk.prompt(), found[1], step=1).turns[0]["calls"][0]["name"] == "reset"
    assert talk.rounds[1][0].prompt.token_ids[: len(asked.token_ids)].tolist() == asked.token_ids.tolist()


def test_an_environment_is_asked_once_for_what_it_shows_first(folder: Path, tmp_path: Path) -> None:
    """Of a group, and by a step that is repeated; a prompt that shows it already is left as it is."""
    talk, found = opened(folder, tmp_path, "Board", [["3"]] * 4)
    resets = (tmp_path / "resets").read_text().split()
    assert len(resets) == 1 + 4, "and each conversation has a state of its own at its end"
    again, repeated = opened(folder, tmp_path, "Board", [["3"]] * 4)
    assert (tmp_path / "resets").read_text().split() == resets
    assert [repr(one) for one in repeated] == [repr(one) for one in found]
    asked = talk.rounds[0][0].prompt
    again.prompt = lambda uid="a": asked  # type: ignore[method-assign]
    assert again.responses([["3"]])[0].opening is asked.opening
    assert again.rounds[0][0].prompt is asked


def test_what_an_environment_shows_first_has_the_limits_of_a_result(folder: Path) -> None:
    """At whatever token the limit lies; no image is cut."""
    talk = Talk(folder)
    prompt, text = talk.prompt(), "You are here, and there is nothing more to see. " * 3
    views = [Picture(f"made-{n}", (56, 28), (56, 28), f"made-{n}", (0, 0, 1, 1), (56, 28)) for n in range(2)]
    answer = Answer(
        [views[0], text, views[1]],
        ToolCall(name="reset", arguments="{}", result="", outcome="answered"),
        is_isolated=True,
    )

    def opening(limit: int) -> EnvironmentOpening:
        return TurnRenderer(talk.chat, ToolsConfig(use=("zoom",), max_result_length=limit)).opening(answer, prompt)

    whole = len(opening(999).token_ids)
    token = talk.chat.vision.image_token_id
    least = whole - len(talk.ids(text, cut=True))
    with pytest.raises(ValueError, match=r"`reset` of the environment shows is more tokens than"):
        opening(16)
    for limit in range(least + len(talk.ids(" ... (cut)", cut=True)) + 1, whole + 1):
        found = opening(limit)
        assert len(found.token_ids) <= limit
        assert ("(cut)" in found.text) == (limit < whole)
        assert (found.token_ids == token).sum() == 2 * len(talk.chat.vision.of_image(56, 28))
    assert limit == whole and text in found.text


def test_an_environment_that_shows_nothing_first_or_fails(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tools.max_images: what `reset` .* at most 4 images"):
        opened(folder, tmp_path / "many", "Gallery", [["3"]], extra={"pictures": 5})
    _, (silent,) = opened(folder, tmp_path / "nothing", "Gallery", [["3"]], extra={"pictures": 0})
    assert silent.opening is None
    talk, (failed,) = opened(folder, tmp_path / "failed", "Gallery", [["3"]], extra={}, max_failed_share=1)
    assert failed.opening is not None and failed.opening.call.outcome == "failed"
    assert talk.rounds[0][0].prompt.text.count("What?\nError: the tool failed") == 1


@pytest.mark.parametrize(("game", "why"), [("Walk", []), ("Fickle", ["smell in turn 1"]), ("FickleAtFirst", ["reset"])])
def test_a_state_that_is_another_one_when_it_is_made_again_is_told(
    folder: Path, tmp_path: Path, game: str, why: list[str]
) -> None:
    """Once, and not of an interrupted step that is repeated."""
    crash = call("crash", file=str(tmp_path / "crashed"))
    script = [call("smell") + call("move", direction="north"), crash, call("rest", seconds=0), call("smell"), "3"]
    events: list[tuple[str, Any]] = []
    settings: dict[str, Any] = {"environment": f"{GAMES}:{game}", "max_turns": 6, "workers": 1, "max_failed_share": 1}
    for _ in range(2):
        own = IsolatedTools(
            ToolsConfig.model_validate(settings),
            DATA,
            image_store=tmp_path,
            journal=Journal(tmp_path / "calls", needed_from=lambda: 0),
            log_event=lambda kind, **facts: events.append((kind, facts.get("why"))),
        )
        with own:
            (one,) = Talk(folder, isolated=own, **settings).responses([script])
        assert [made.outcome for put in one.insertions for made in put.calls] == [
            *("answered", "answered", "failed", "answered", "answered"),
        ]
    assert events == [("tool_failed", None), *(("environment_differs", call) for call in why)]


def test_a_template_with_images_first_shows_a_text_first_and_no_image(folder: Path, tmp_path: Path) -> None:
    """As LLaVA's: what an environment shows comes last in the prompt."""
    plain = Talk(folder).chat._chat_template
    images = "{%- for part in message['content'] if part['type'] == 'image' -%}"
    forms = plain.split("{%- for part in message['content'] -%}")
    assert len(forms) == 2 and forms[1].count("{%- elif part['type'] == 'video' -%}") == 1
    first, rest = forms[1].split("{%- elif part['type'] == 'video' -%}")
    others = "{%- for part in message['content'] if part['type'] != 'image' -%}{%- if part['type'] == 'video' -%}"
    template = forms[0] + images + first + "{%- endif -%}{%- endfor -%}" + others + rest
    own, settings = walking(tmp_path, workers=1)
    talk = Talk(folder, isolated=own, template=template, **settings)
    renderer, call = TurnRenderer(talk.chat, talk.tools), ToolCall(name="", arguments="", result="", outcome="answered")
    assert renderer.opening(Answer(["You are here."], call, is_isolated=True), talk.prompt()).text == "\nYou are here."
    view = Picture("made-1", (56, 28), (56, 28), "made-1", (0, 0, 1, 1), (56, 28))
    with pytest.raises(ValueError, match=r"one after the other, .* or have it show a text alone"):
        renderer.opening(Answer([view], call, is_isolated=True), talk.prompt())
