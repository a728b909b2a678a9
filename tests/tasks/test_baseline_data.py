"""The baselines' columns, prompts, pixel limits and rewards on a synthetic set in each hub dataset's schema, offline.

The rows are made up; names and types of the columns are the published ones, read by `datasets` as from the hub."""

from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from tasks.cache.named_files import located_config
from tasks.planning.trials import data_problems, reward_problems
from tests.rl_core.data.samples import png_bytes

ROOT = Path(__file__).parents[2]
IMAGES = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
DATASETS = {
    "qwen2_5_vl_3b_geo3k_grpo": (
        "qwen2_5_vl",
        "<image>Find $x$ in figure {}.",
        ("48", "2 \\sqrt { 3 }", "\\frac{1}{2}"),
    ),
    "qwen2_5_vl_3b_clevr_count_grpo": ("qwen2_5_vl", "<image>How many items are there in picture {}?", ("3", "10")),
    "qwen2_5_vl_3b_geoqa8k_grpo": ("qwen2_5_vl", "<image>What is the degree of angle {}?", ("145°", "2.5", "65°")),
    "qwen2_5_7b_math12k_grpo": ("qwen2_5", "Compute ${} + 1$.", ("7", "\\frac{3}{4}", "(1,2)")),
}


def write_split(folder: Path, split: str, question: str, answers: tuple[str, ...], *, first: int) -> None:
    numbers = range(first, first + 6)
    columns = {
        "problem": pa.array([question.replace("{}", str(number)) for number in numbers]),
        "answer": pa.array([answers[number % len(answers)] for number in numbers]),
    }
    if "<image>" in question:
        pictures = [png_bytes((120 + number, 90), (7 * number % 256, 99, 180)) for number in numbers]
        columns["images"] = pa.array([[{"bytes": picture, "path": None}] for picture in pictures], IMAGES)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "data" / f"{split}-00000-of-00001.parquet")


@pytest.fixture(params=DATASETS)
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    family, question, answers = DATASETS[request.param]
    folder = tmp_path / "owner-name"
    for split, first in (("train", 0), ("test", 100)):
        write_split(folder, split, question, answers, first=first)
    tiny = f"model.source={{type: tiny, family: {family}, hidden_size: 32, num_layers: 1, vision_depth: 1}}"
    sources = [f"data.{name}.name={folder}@{split}" for name, split in (("train", "train"), ("validation", "test"))]
    config = load_config(Path(f"configs/baselines/{request.param}.yaml"), [*sources, tiny])
    return located_config(config)


def test_rows_in_the_hubs_schema_become_prompts_and_true_answers_score_in_full(config: RunConfig) -> None:
    assert data_problems(config) == []
    assert reward_problems(config) == []


@pytest.mark.parametrize("config", ["qwen2_5_vl_3b_geo3k_grpo"], indirect=True)
def test_a_set_in_another_schema_is_refused(config: RunConfig) -> None:
    """The control."""
    renamed = config.data.train.columns.model_copy(update={"answer_key": "solution"})
    train = config.data.train.model_copy(update={"columns": renamed})
    other = config.model_copy(update={"data": config.data.model_copy(update={"train": train})})
    (problem,) = data_problems(other)
    assert "has no column 'solution'" in str(problem)
