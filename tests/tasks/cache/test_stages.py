"""Exactly the stages that depend on a change get a new digest."""

import json
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.sources.local import LocalSource
from tasks.cache.named_files import NamedFiles
from tasks.cache.stages import epoch_chain, run_name, stage_digests

pytestmark = pytest.mark.usefixtures("at_the_root")
AFTER_TRAINING = {"training", "evaluate-trained", "merge", "model-card", "report"}
ALL = AFTER_TRAINING | {"prepare", "training-rows", "cold-start", "evaluate-base"}
AFTER_COLD_START = ALL - {"prepare", "training-rows"}
EVALUATION = {"evaluate-base", "evaluate-trained", "model-card", "report"}


def quickstart(*overrides: str) -> RunConfig:
    return load_config(Path("configs/quickstart.yaml"), overrides)


def source_digest(source: object) -> str:
    return json.dumps(source.model_dump(mode="json"))  # type: ignore[attr-defined]


def digests(config: RunConfig) -> dict[str, str]:
    return stage_digests(config, NamedFiles(source_digest, paths_from=config.paths_from))


def changed(before: RunConfig, after: RunConfig) -> set[str]:
    old, new = digests(before), digests(after)
    return {stage for stage in old if old[stage] != new[stage]}


@pytest.mark.parametrize(
    ("override", "reruns"),
    [
        ("actor.optim.lr=1e-4", AFTER_TRAINING),
        ("algorithm.loss.clip_ratio_high=0.3", AFTER_TRAINING),
        ("rollout.n=4", AFTER_TRAINING),
        ("data.rollout_batch_size=32", AFTER_TRAINING),
        ("data.source_weights={counting: 1.0}", AFTER_TRAINING),
        ("data.shuffle=false", AFTER_COLD_START),
        ("trainer.total_epochs=99", AFTER_TRAINING),
        ("trainer.max_steps=10", AFTER_TRAINING),
        ("reward.kwargs={format_weight: 0.2}", AFTER_TRAINING | EVALUATION),
        ("rollout.max_response_length=16", AFTER_TRAINING | EVALUATION),
        ("evaluation.temperature=0.5", EVALUATION),
        ("evaluation.limit=100", AFTER_TRAINING | EVALUATION),
        ("evaluation.tools=none", set()),
        ("evaluation.top_p=0.9", EVALUATION),
        ("merge.probe_tolerance=1e-3", set()),
        ("merge.checkpoint=best", {"evaluate-trained", "merge", "model-card", "report"}),
        ("cold_start.steps=10", AFTER_COLD_START),
        ("cold_start.optim.lr=1e-4", AFTER_COLD_START),
        ("data.max_prompt_length=128", ALL),
        ("data.override_chat_template=prompts/count.jinja", ALL),
        ("data.curriculum={column: objects}", ALL),
        ("data.train.scene_seed=9", ALL),
        ("data.validation.scene_seed=9", {"prepare"} | EVALUATION | AFTER_TRAINING),
        ("model.source.num_layers=2", ALL),
        ("model.lora={rank: 8}", AFTER_TRAINING),
        ("critic={cliprange_value: 0.2}", AFTER_TRAINING),
        ("model.freeze_vision_tower=true", AFTER_TRAINING),
        ("actor.optim.strategy=adamw_bf16", AFTER_TRAINING),
        ("seed=2", ALL),
        ("tracking.gallery_items=3", {"report"}),
        ("model.gradient_checkpointing=true", set()),
        ("trainer.offload=all", set()),
        ("trainer.save_limit=1", set()),
        ("trainer.async_save=false", set()),
        ("trainer.stop_at={metric: val/accuracy, value: 0.9}", AFTER_TRAINING),
        ("cluster={nodes: 2, devices: 4, sharding: hybrid}", set()),
        ("planning={mean_prompt_length: 40, mean_response_length: 8}", set()),
        ("tracking.mlflow_uri=http://127.0.0.1:5000", set()),
        ("storage.address=s3://bucket/runs", set()),
        ("experiment=other", set()),
    ],
)
def test_exactly_the_stages_that_depend_on_a_change_get_a_new_digest(override: str, reruns: set[str]) -> None:
    assert changed(quickstart(), quickstart(override)) == reruns


def test_other_tools_when_held_out_rows_are_answered_leave_what_comes_before_the_training() -> None:
    tools = "tools={use: [calculator]}"
    other = {"prepare"} | EVALUATION | AFTER_TRAINING
    assert changed(quickstart(tools), quickstart(tools, "evaluation.tools=none")) == other
    assert (
        digests(quickstart(tools, "evaluation.tools=none"))["evaluate-base"] != digests(quickstart())["evaluate-base"]
    )


@pytest.mark.parametrize("setting", ["n=4", "temperature=0.3", "top_p=0.5"])
def test_the_evaluations_sampling_matters_to_training_only_where_validation_samples(setting: str) -> None:
    evaluation = f"evaluation.{setting}"
    assert changed(quickstart(), quickstart(evaluation)) == EVALUATION
    sampled = "trainer.val_mode=sampled"
    assert changed(quickstart(sampled), quickstart(sampled, evaluation)) == AFTER_TRAINING | EVALUATION


def test_the_order_of_rows_matters_to_a_cold_start_only_where_there_is_one() -> None:
    before, after = (quickstart("cold_start=null", f"data.shuffle={word}") for word in ("true", "false"))
    assert changed(before, after) == AFTER_TRAINING


def test_the_direction_of_a_curriculum_changes_no_prepared_row() -> None:
    before, after = (
        quickstart(f"data.curriculum={{column: objects, descending: {word}}}") for word in ("true", "false")
    )
    assert changed(before, after) == AFTER_TRAINING


@pytest.mark.parametrize("key", ["data.prompt_template", "data.override_chat_template"])
def test_a_template_that_is_not_utf8_is_named(tmp_path: Path, key: str) -> None:
    template = tmp_path / "prompt.jinja"
    template.write_bytes("{{ content }} Größe?".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"{template} is not UTF-8 text \(line 1\): save it as UTF-8"):
        digests(quickstart(f"{key}={template}"))


def test_one_changed_source_image_changes_every_stage(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"one")
    (tmp_path / "rows.jsonl").write_text('{"problem": "<image>?", "images": ["image.png"], "answer": "1"}\n')
    source = LocalSource(type="local", path=str(tmp_path / "rows.jsonl"))
    config = quickstart()
    config = config.model_copy(update={"data": config.data.model_copy(update={"train": source})})
    before = stage_digests(config)
    (tmp_path / "image.png").write_bytes(b"two")
    after = stage_digests(config)
    assert {stage for stage in before if before[stage] != after[stage]} == ALL


def test_an_epoch_depends_on_the_ones_before_it_and_not_on_the_number_that_follows() -> None:
    chains = epoch_chains("actor.optim.lr_scheduler_type=constant")
    assert chains[0] == chains[1]
    assert len({digest for _, digest in chains[0]}) == 3
    assert [name for name, _ in chains[0]] == ["train-epoch-001", "train-epoch-002", "train-epoch-003"]


@pytest.mark.parametrize(
    "rate",
    [
        ("actor.optim.lr_scheduler_type=cosine",),
        ("actor.optim.lr_scheduler_type=constant", "actor.optim.lr_warmup_steps=0", "actor.optim.lr_warmup_ratio=0.1"),
    ],
)
def test_an_epoch_depends_on_the_length_of_the_run_when_the_learning_rate_does(rate: tuple[str, ...]) -> None:
    short, long = epoch_chains(*rate)
    assert not set(short) & set(long)


def epoch_chains(*overrides: str) -> list[list[tuple[str, str]]]:
    """The chain of three epochs in a run of two and in a run of three."""
    configs = [quickstart(f"trainer.total_epochs={epochs}", *overrides) for epochs in (2, 3)]
    return [list(epoch_chain(config, digests(config), epochs=3)) for config in configs]


def test_a_run_is_named_after_its_experiment_its_config_and_its_tag() -> None:
    name = run_name(quickstart())
    assert name.startswith("quickstart-")
    assert run_name(quickstart(), tag="20260101T000000") == f"{name}-20260101T000000"
    assert run_name(quickstart("tracking.mlflow_uri=null", "merge.push=owner/name")) == name
    assert run_name(quickstart("storage.address=/mnt/share", "storage.verify=false")) == name
    assert run_name(quickstart("planning={mean_response_length: 8}")) == name
    assert run_name(quickstart("actor.optim.lr=1e-4")) != name


FILES = {
    "own.jinja": "{{ content }}",
    "reward.py": "import grading\ndef function(sample): ...\n",
    "grading.py": "",
    "rows.py": "import words\ndef rows(): ...\n",
    "words.py": "",
    "mine.py": "def function(inputs): ...\n",
    "package_of_mine/__init__.py": "",
    "package_of_mine/one.py": "from package_of_mine import two\ndef function(inputs): ...\n",
    "package_of_mine/two.py": "",
}


@pytest.mark.parametrize(
    ("override", "edited", "reruns"),
    [
        ("data.prompt_template={}/own.jinja", "own.jinja", ALL),
        ("data.train={{type: custom, function: '{}/rows.py:rows'}}", "rows.py", ALL),
        ("cold_start.source={{type: custom, function: '{}/rows.py:rows'}}", "words.py", ALL),
        ("reward.function={}/reward.py:function", "reward.py", AFTER_TRAINING | EVALUATION),
        ("reward.function={}/reward.py:function", "grading.py", AFTER_TRAINING | EVALUATION),
        ("reward.function=package_of_mine.one:function", "package_of_mine/two.py", AFTER_TRAINING | EVALUATION),
        ("model.family={}/mine.py:function", "mine.py", ALL),
        ("model.family={}/rows.py:rows", "words.py", ALL),
        ("algorithm.loss={{type: custom, function: {}/mine.py:function}}", "mine.py", AFTER_TRAINING),
        ("algorithm.advantage={{type: custom, function: {}/mine.py:function}}", "mine.py", AFTER_TRAINING),
        ("algorithm.online_filtering={{type: custom, function: {}/mine.py:function}}", "mine.py", AFTER_TRAINING),
        (
            "algorithm.loss={{type: custom, function: package_of_mine.one:function}}",
            "package_of_mine/two.py",
            AFTER_TRAINING,
        ),
    ],
)
def test_an_edited_file_changes_the_stages_that_depend_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, edited: str, reruns: set[str]
) -> None:
    """A file that the config names, one that such a file imports, and one of an installed package."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = quickstart(override.format(tmp_path))
    before = stage_digests(config)
    with (tmp_path / edited).open("a") as file:
        file.write("# otherwise\n")
    after = stage_digests(config)
    assert {stage for stage in before if before[stage] != after[stage]} == reruns


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.train={{type: custom, function: '{}/gone.py:rows'}}", r"gone\.py:rows': there is no file"),
        ("reward.function={}/gone.py:score", r"the config names .*gone\.py, which cannot be read: No such file"),
        ("data.prompt_template={}/nowhere.jinja", r"nowhere\.jinja"),
    ],
)
def test_a_file_that_is_not_there_is_named(tmp_path: Path, override: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stage_digests(quickstart(override.format(tmp_path)))
