"""A model on two protocols with one start of the real engine, against transformers' own greedy answers."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from rl_core.checkpoints.manifest import CheckpointInfo
from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.loading import dump_config, load_config
from rl_core.data.images import ImageStore
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.model_evaluation import FoundModel, Measurement, _render_all, evaluate_model, find_model
from rl_core.evaluation.protocol_result import ProtocolResult
from rl_core.evaluation.protocols.own import own_protocols
from rl_core.evaluation.protocols.registry import GEO3K_EASYR1, SUPERCLEVR_R1V
from rl_core.models.loading import banned_token_ids, load_processor, stop_token_ids
from rl_core.models.pixels import PixelCache
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.sources.counting import CountingSource
from rl_core.training.batches import UpdateBatch
from tests.rl_core.builders import groups_of
from tests.rl_core.models.plain import greedy_response
from tests.rl_core.small_run import SMALL
from tests.rl_core.steps import optimizer_batch, save_state

SOURCE = CountingSource(type="counting", size=5, scene_seed=9, image_size=56)
GREEDY = replace(SUPERCLEVR_R1V, answering=replace(SUPERCLEVR_R1V.answering, max_response_length=8))
SAMPLED = replace(GEO3K_EASYR1, min_pixels=1, answering=replace(GEO3K_EASYR1.answering, n=2, max_response_length=6))
(OWN,) = own_protocols(load_config(SMALL, ["evaluation={modes: [sampled], n: 2, limit: 3}"]))
GAMES = Path(__file__).parents[1] / "tools" / "games.py"
TALKS = [
    "evaluation={modes: [sampled], temperature: 1.0, top_p: 1.0, limit: 3, n: 8}",
    "rollout.max_response_length=64",
]
(TALKING,) = own_protocols(
    load_config(SMALL, [*TALKS, f"tools={{use: [calculator], environment: '{GAMES}:Painter', max_turns: 2}}"])
)
MEASUREMENTS = [Measurement(protocol=protocol, source=SOURCE) for protocol in (GREEDY, SAMPLED, OWN, TALKING)]

Found = list[tuple[ProtocolResult, list[EvaluationItem]]]


@pytest.fixture(scope="module")
def model(prepared_run) -> FoundModel:
    return FoundModel(folder=prepared_run.initial_model, origin="the test's")


@pytest.fixture(scope="module")
def found(shared_worker, model) -> Iterator[Found]:
    shared_worker.close()  # vLLM runs once in a process at a time
    return list(evaluate_model(model, MEASUREMENTS, dtype="float32", seed=4, progress=SilentProgress()))


def test_every_protocol_gets_its_result(found):
    (greedy, greedy_items), (sampled, sampled_items), (own, own_items), _ = found
    assert (own.name, own.result.n, own.result.samples) == ("small-sampled", 3, 6)
    assert all("inside <answer>" in item.prompt for item in own_items)
    assert (greedy.name, greedy.result.n, greedy.result.samples) == ("superclevr-r1v@1", 5, 5)
    assert (sampled.name, sampled.result.n, sampled.result.samples) == ("geo3k-easyr1@1", 5, 10)
    assert [k for k, _ in sampled.result.pass_at] == [1, 2]
    assert {item.mode for item in greedy_items} == {"greedy"}
    assert max(item.length for item in greedy_items) <= 8
    assert max(item.length for item in sampled_items) <= 6
    assert greedy.subject["model"] == "the test's"
    assert {"torch", "transformers"} <= greedy.subject["engine"].keys()
    assert greedy.remarks[1] == "items: 5, not the published 200"
    assert all("First" not in item.prompt and "Think first" in item.prompt for item in greedy_items)


def test_a_config_with_tools_is_asked_with_them(found):
    """Its environment paints a picture after each turn of the model, which the generator sees before the second one."""
    _, items = found[-1]
    assert all("calculator(" in item.prompt for item in items)
    spoken = [item.turns for item in items if item.turns]
    assert spoken
    assert all(turns[1]["role"] == "tool" and len(turns[1]["image_uids"]) == 1 for turns in spoken)


def test_the_answers_are_those_of_the_models_weights(found, model, tmp_path):
    """The same prompts, decoded greedily by transformers."""
    (questions,) = _render_all(model, MEASUREMENTS[:1], tmp_path / "images.arrow", SilentProgress())
    processor = load_processor(model.folder)
    respond = partial(
        greedy_response,
        AutoModelForImageTextToText.from_pretrained(model.folder, dtype=torch.float32),
        pixels=PixelCache(model.folder, ImageStore(tmp_path / "images.arrow")),
        banned=banned_token_ids(model.folder),
        stops=stop_token_ids(model.folder),
        longest=8,
    )
    decode = partial(processor.tokenizer.decode, skip_special_tokens=True)
    expected = {prompt.uid: decode(respond(prompt)) for prompt in questions.prompts}
    assert {item.uid: item.response for item in found[0][1]} == expected


def test_items_that_cannot_be_asked_are_reported(model, tmp_path):
    short = replace(GREEDY, max_prompt_length=8)
    with pytest.raises(ValueError, match=r"no item of counting can be asked; left out: 5 .*max_prompt_length is 8"):
        _render_all(model, [Measurement(protocol=short, source=SOURCE)], tmp_path / "images.arrow", SilentProgress())


@pytest.fixture
def own_run(prepared_run, config, tmp_path) -> RunDirectory:
    """A copy to write into."""
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(prepared_run.root, run.root)
    run.config.write_text(dump_config(config))
    return run


def test_a_run_is_its_merged_model(own_run):
    with (
        pytest.raises(ValueError, match="a run without a merged model: sightline merge"),
        find_model(str(own_run.root)),
    ):
        pass
    shutil.copytree(own_run.initial_model, own_run.merged_model)
    with find_model(str(own_run.root)) as model:
        assert model.folder == own_run.merged_model


def test_a_checkpoint_is_exported_with_its_own_weights(own_run, worker, train_groups):
    worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False))
    expected = {name: weight.clone() for name, weight in worker.trainer.policy.model.state_dict().items()}
    probe = groups_of(train_groups[:1])
    saved = CheckpointStore(own_run.checkpoints, save_limit=1).save(
        lambda folder: save_state(worker, folder, model_only=True, probe=probe), info=CheckpointInfo(step=1)
    )
    with find_model(str(saved.folder)) as model:
        exported = AutoModelForImageTextToText.from_pretrained(model.folder, dtype=torch.float32).state_dict()
        assert all(torch.equal(exported[name], expected[name]) for name in expected)
        assert (model.folder / "tokenizer.json").is_file()
        assert model.own_dtype() == "float32"
    assert not model.folder.exists()


@pytest.mark.parametrize(
    ("named", "dtype"),
    [
        ({"dtype": "float32"}, "float32"),
        ({"torch_dtype": "float32"}, "float32"),
        ({"text_config": {"dtype": "float32"}}, "float32"),
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float16"}, "bfloat16"),
        ({}, "bfloat16"),
    ],
)
def test_the_number_format_is_the_checkpoints_own(tmp_path, named, dtype):
    (tmp_path / "config.json").write_text(json.dumps(named))
    assert FoundModel(folder=tmp_path, origin="").own_dtype() == dtype


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"is not a model: it has no config\.json"), find_model(str(tmp_path)):
        pass
    with (
        pytest.raises(ValueError, match="there is no folder nowhere, and it is not an owner/name"),
        find_model("nowhere"),
    ):
        pass
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/base"}')
    with pytest.raises(ValueError, match=r"holds a LoRA adapter .* of owner/base"), find_model(str(tmp_path)):
        pass
