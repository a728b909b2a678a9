"""Places of weights: what a load through vLLM did, repeated copy by copy."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from rl_core.models.named_weights import named_hf_weights
from rl_core.rollout.copy_recorder import CopyRecorder
from rl_core.rollout.cpu.weight_places import WeightPlaces
from rl_core.rollout.weight_loading import WeightLoader, expected_weights
from tests.rl_core.rollout.engines import Running, perturbed

Load = Callable[[nn.Module, str, torch.Tensor], None]


def _model_in_vllm(running: Running) -> nn.Module:
    (model,) = running.engine._engine.apply_model(lambda model: model)
    return model


def _numbers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter, and what each layer makes of a probe, which shows the matrices that kernels have packed."""
    numbers = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for name, layer in model.named_modules():
        if hasattr(layer, "cpu_linear"):
            width = getattr(layer, "input_size", None) or layer.embedding_dim
            probe = torch.randn(3, width, generator=torch.Generator().manual_seed(1))
            numbers[f"{name} times a probe"] = layer.cpu_linear(probe, layer.weight, None)
    return numbers


def test_copied_weights_are_equal_to_the_bit_to_those_that_vllm_loads(running):
    running.sync()
    model, first = _model_in_vllm(running), perturbed(running.policy.model, scale=0.5)
    before = _numbers(model)
    assert running.engine._weights.places is not None, "this family's weights go the ordinary way"
    running.engine.load_weights(first, policy_version=2)
    copied = _numbers(model)
    ordinary = WeightLoader(running.engine._engine, expected=expected_weights(running.policy.folder))
    ordinary.load(first)
    loaded = _numbers(model)
    assert copied.keys() == loaded.keys()
    for name, numbers in copied.items():
        assert torch.equal(numbers, loaded[name]), name
    unchanged = [name for name in copied if "probe" in name and torch.equal(copied[name], before[name])]
    assert not unchanged, "the control: the new weights reached every kernel"


@pytest.mark.parametrize("running", ["llama"], indirect=True)
def test_a_weight_of_another_shape_is_refused(running):
    running.sync()
    (name, weight), *others = named_hf_weights(running.policy.model)
    with pytest.raises(ValueError, match=rf"{name} has the shape"):
        running.engine.load_weights([(name, weight.t()), *others], policy_version=2)


class _Pair(nn.Module):
    """A layer whose matrix holds two weights, as the joined projections of vLLM do."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = nn.Linear(4, 6, bias=False)


def _stacked(model: nn.Module, name: str, weight: torch.Tensor) -> None:
    model.joined.weight.data.narrow(0, 0 if name == "first" else 3, 3).copy_(weight)


def _recorded(load: Load) -> tuple[nn.Module, CopyRecorder]:
    model = _Pair()
    with CopyRecorder(model) as recorder:
        for name, weight in recorder.watch([("first", torch.randn(3, 4)), ("second", torch.randn(3, 4))]):
            load(model, name, weight)
    return model, recorder


def test_stacked_weights_are_copied_to_their_rows():
    model, recorder = _recorded(_stacked)
    places = WeightPlaces.proven(model, recorder)
    assert places is not None
    first, second = torch.randn(3, 4), torch.randn(4, 3).t()
    places.fill([("second", second), ("first", first)])
    assert torch.equal(model.joined.weight, torch.cat([first, second]))


def _scaled(model: nn.Module, name: str, weight: torch.Tensor) -> None:
    _stacked(model, name, weight * 2)


def _in_part(model: nn.Module, name: str, weight: torch.Tensor) -> None:
    model.joined.weight.data.narrow(0, 0 if name == "first" else 2, 2).copy_(weight[:2])


def _twice(model: nn.Module, name: str, weight: torch.Tensor) -> None:
    model.joined.weight.data.narrow(0, 0, 3).copy_(weight[:1].expand(3, 4))
    _in_part(model, name, weight)


@pytest.mark.parametrize("load", [_scaled, _in_part, _twice])
def test_a_load_that_is_more_than_copies_of_whole_weights_proves_no_places(load):
    assert WeightPlaces.proven(*_recorded(load)) is None


def test_a_layer_that_vllm_changes_in_an_unknown_way_proves_no_places():
    model, recorder = _recorded(_stacked)
    model.joined.quant_method = object()
    assert WeightPlaces.proven(model, recorder) is None
