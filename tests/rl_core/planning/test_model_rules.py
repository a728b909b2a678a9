"""What of the model is trained, and by which optimizer: contradictions are named."""

from collections.abc import Callable

import pytest

from rl_core.config.run import RunConfig
from rl_core.planning.gpu import Gpu
from rl_core.planning.preflight import check_config

Configure = Callable[..., RunConfig]


@pytest.mark.parametrize(
    ("overrides", "where", "what"),
    [
        (
            ["model.lora={rank: 4}", "model.freeze_vision_tower=true"],
            "model.freeze_vision_tower",
            "freezes every weight",
        ),
        (["model.lora={rank: 4}", "actor.optim.strategy=adamw_bf16"], "actor.optim.strategy", "model.dtype is float32"),
        (["actor.optim.strategy=adamw_bf16"], "actor.optim.strategy", "model.dtype is float32"),
        (
            ["cold_start={steps: 1, optim: {strategy: adamw_bf16}}"],
            "cold_start.optim.strategy",
            "model.dtype is float32",
        ),
        (
            ["model.source.family=llama", "model.freeze_vision_tower=true"],
            "model.freeze_vision_tower",
            "no vision tower",
        ),
        (["model.lora={target_modules: [query]}"], "model.lora.target_modules", "no linear layer"),
        (["model.lora={target_modules: [qkv]}"], "model.lora.target_modules", "no linear layer"),
        (
            ["model.source.family=llama", "model.lora={target_modules: [qkv], exclude_modules: null}"],
            "model.lora.target_modules",
            "no linear layer",
        ),
        (["model.lora={exclude_modules: '.*'}"], "model.lora.target_modules", "no linear layer"),
        (["model.lora={target_modules: [lm_head]}"], "model.lora.target_modules", "matches lm_head: embeddings"),
        (["model.lora={target_modules: [q_proj, norm]}"], "model.lora.target_modules", "language_model.norm: emb"),
        (["model.lora={target_modules: '.*mlp'}"], "model.lora.target_modules", "layers.0.mlp, "),
        (["model.attention=flash"], "model.attention", "no NVIDIA GPU"),
        (["model.source.num_heads=8"], "model.source.hidden_size", "attention heads of width 16"),
        (["model.source.hidden_size=48"], "model.source.hidden_size", "no multiple of 8 x num_heads (32)"),
        (["model.source.num_key_value_heads=3"], "model.source.num_key_value_heads", "do not share 3"),
        (["model.source.vision_hidden_size=24"], "model.source.vision_hidden_size", "no multiple of 4 x num_heads"),
    ],
)
def test_a_contradiction_is_named(configure: Configure, overrides: list[str], where: str, what: str) -> None:
    problems = [problem for problem in check_config(configure(*overrides)) if problem.fatal]
    assert where in [problem.where for problem in problems]
    assert any(what in problem.what for problem in problems if problem.where == where)


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.lora={rank: 4}"],
        ["model.lora={rank: 4, exclude_modules: null, target_modules: [qkv]}"],
        ["model.freeze_vision_tower=true"],
        ["model.source={type: tiny, family: llama, vision_hidden_size: 24}"],
        ["model.dtype=bfloat16", "actor.optim.strategy=adamw_bf16"],
        ["model.dtype=bfloat16", "model.lora={rank: 4}", "actor.optim.strategy=adamw_bf16"],
    ],
)
def test_what_fits_together_is_no_problem(configure: Configure, overrides: list[str]) -> None:
    where = [problem.where for problem in check_config(configure(*overrides)) if problem.fatal]
    assert not [key for key in where if key.startswith(("model.", "actor.optim"))]


def test_vllm_has_adapters_in_16_bits_only_on_a_gpu(configure: Configure) -> None:
    separate = "model.lora={rank: 4, generator_weights: separate}"

    def found(*overrides: str, gpu: Gpu | None) -> bool:
        problems = check_config(configure(*overrides), gpu=gpu)
        return any(problem.where == "model.lora.generator_weights" for problem in problems)

    card = Gpu(memory_gib=80.0, is_elsewhere=True)
    assert found(separate, gpu=card)
    assert not found(separate, gpu=None)
    assert not found(separate, "model.dtype=bfloat16", gpu=card)
    assert not found("model.lora={rank: 4}", gpu=card)
