"""A config that was written for somebody's data is one that a run takes, whatever its file is called."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.planning.rules import check_config
from tasks.cache.named_files import located_config
from tasks.new_config.writing import InitOptions, propose, write_config

WriteRows = Callable[..., Path]


def written(data: Path, out: Path) -> RunConfig:
    """The config that `init` writes for the data."""
    return write_config(propose(str(data), InitOptions(), folder=out.with_name("data")), out, max_prompt_length=64)


def asked(number: int, **columns: object) -> dict[str, object]:
    return {"problem": f"What is {number} + 1?", "answer": str(number + 1), **columns}


@pytest.mark.parametrize(
    ("name", "experiment"),
    [
        ("config.yaml", "config"),
        ("My clevr_v2.yaml", "my-clevr-v2"),
        ("试验.yaml", "experiment"),
        ("x" * 58 + "-_yz.yaml", "x" * 58 + "-y"),
    ],
)
def test_the_experiment_is_named_after_the_file_in_ascii(
    write_jsonl: WriteRows, tmp_path: Path, name: str, experiment: str
) -> None:
    config = written(write_jsonl([asked(number) for number in range(16)]), tmp_path / name)
    assert config.experiment == experiment
    assert located_config(load_config(tmp_path / name)) == config


def test_a_split_in_several_shards_is_read_whole(write_jsonl: WriteRows, tmp_path: Path) -> None:
    for shard in (2, 0, 1):
        write_jsonl([asked(shard)], f"train-0000{shard}-of-00003.jsonl")
    write_jsonl([asked(7)], "test-00000-of-00001.jsonl")
    config = written(tmp_path, tmp_path / "config.yaml")
    rows = list(config.data.train.open())
    assert [row.answer for row in rows] == ["1", "2", "3"]
    assert {row.data_source for row in rows} == {"train"}
    assert [row.answer for row in config.data.validation.open()] == ["8"]
    assert not [problem for problem in check_config(config) if problem.fatal]


def test_held_out_answers_are_counted_as_those_of_the_training_rows(write_jsonl: WriteRows, tmp_path: Path) -> None:
    """The few of them may fit a count from 0 too."""
    for name, answers in (("train", [1, 2, 3, 3]), ("test", [1, 2])):
        rows = [{"question": f"{name} {n}?", "choices": ["x1", "x2", "x3"], "answer": n} for n in answers]
        write_jsonl(rows, f"{name}.jsonl")
    config = written(tmp_path, tmp_path / "config.yaml")
    assert [row.answer for row in config.data.train.open()] == ["A", "B", "C", "C"]
    assert [row.answer for row in config.data.validation.open()] == ["A", "B"]


def test_a_model_without_eyes_may_pass_over_a_column_with_the_name_of_images(
    write_jsonl: WriteRows, tmp_path: Path
) -> None:
    data = str(write_jsonl([asked(number, image=number) for number in range(16)]))
    (tmp_path / "model").mkdir()
    for fields, refused in (({"model_type": "qwen2"}, False), ({"model_type": "qwen2_vl", "vision_config": {}}, True)):
        (tmp_path / "model" / "config.json").write_text(json.dumps(fields))
        options = InitOptions(model=str(tmp_path / "model"))
        if refused:
            with pytest.raises(ValueError, match="no row has an image, and the model takes images: column 'image'"):
                propose(data, options, folder=tmp_path / "data")
        else:
            proposal = propose(data, options, folder=tmp_path / "data")
            assert "column 'image'" in proposal.inspection.unused[0]
