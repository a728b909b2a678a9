from rl_core.config.model import PretrainedModel
from rl_core.planning.known_models import KNOWN_MODELS
from rl_core.planning.model_sizes import model_sizes

PUBLISHED_PARAMETERS = {
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-VL-32B-Instruct": 33_452_718_336,
    "Qwen/Qwen2.5-VL-72B-Instruct": 73_410_777_344,
}
"""Totals of the checkpoints' safetensors, as the hub's pages tell them."""


def test_a_known_checkpoint_has_its_published_number_of_parameters() -> None:
    assert PUBLISHED_PARAMETERS.keys() == KNOWN_MODELS.keys()
    for name, parameters in PUBLISHED_PARAMETERS.items():
        sizes = model_sizes(PretrainedModel(type="pretrained", path=name))
        assert sizes is not None
        assert sizes.parameters == parameters, name


def test_another_one_is_known_when_it_was_downloaded() -> None:
    assert model_sizes(PretrainedModel(type="pretrained", path="nobody/nothing")) is None
