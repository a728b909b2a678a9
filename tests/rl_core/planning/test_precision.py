import pytest

from rl_core import environment
from rl_core.config.cluster import ClusterConfig
from rl_core.config.model import LoraConfig, ModelConfig
from rl_core.config.training import OptimConfig
from rl_core.planning.precision import precision_words, threads_words, trained_words


def model_config(**fields: object) -> ModelConfig:
    return ModelConfig.model_validate({"source": {"type": "tiny"}, **fields})


@pytest.mark.parametrize(
    ("dtype", "strategy", "words"),
    [
        ("float32", "adamw", "float32 throughout"),
        ("bfloat16", "adamw", "bfloat16 arithmetic, float32 master weights"),
        (
            "bfloat16",
            "adamw_bf16",
            "bfloat16 arithmetic, float32 master weights; gradients and first moment bfloat16",
        ),
    ],
)
def test_each_precision_has_its_words(dtype: str, strategy: str, words: str) -> None:
    assert precision_words(model_config(dtype=dtype), OptimConfig(strategy=strategy)) == words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "all weights"),
        ({"freeze_vision_tower": True}, "all weights but the vision tower's"),
        ({"lora": LoraConfig(rank=8)}, "LoRA adapters of rank 8"),
    ],
)
def test_each_trained_part_has_its_words(fields: dict[str, object], words: str) -> None:
    assert trained_words(model_config(**fields)) == words


def test_a_number_of_threads_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "usable_cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    two, kept = ClusterConfig(devices=2), "cluster.threads would keep it on every machine"
    assert threads_words(two) == f"3 for each worker (its share of the cores here; {kept})"
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert threads_words(two) == f"4 for each worker (OMP_NUM_THREADS; {kept})"
    assert threads_words(ClusterConfig(threads=8)) == "8 for each worker (cluster.threads)"
