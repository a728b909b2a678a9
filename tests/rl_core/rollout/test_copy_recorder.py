"""What of the weights arrives in a model, whatever its loader does."""

import gc

import pytest
import torch
from torch import nn

from rl_core.rollout.copy_recorder import CopyRecorder, View, covers_once

HALF = torch.arange(12.0).reshape(3, 4)


class _Model(nn.Module):
    """A joined matrix of two weights, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = nn.Linear(4, 6, bias=False)
        self.register_buffer("scale", torch.zeros(3))


def _arrived(load, weights) -> dict[str, float]:
    """What did not arrive of weights that are loaded one by one."""
    model = _Model()
    with CopyRecorder(model) as recorder:
        for name, weight in recorder.watch(weights):
            load(model, name, weight)
    return recorder.arrived_in_part()


def _rows(model: nn.Module, name: str) -> torch.Tensor:
    return model.joined.weight.data.narrow(0, 0 if name == "first" else 3, 3)


LOADS = {
    "copied": (lambda model, name, weight: _rows(model, name).copy_(weight), {}),
    "in two parts": (
        lambda model, name, weight: [_rows(model, name)[k : k + 2].copy_(weight[k : k + 2]) for k in (0, 2)],
        {},
    ),
    "negated": (lambda model, name, weight: _rows(model, name).copy_(-weight), {}),
    "through another tensor": (
        lambda model, name, weight: _rows(model, name).copy_(torch.empty(3, 4).copy_(weight).exp()),
        {},
    ),
    "dropped": (lambda model, name, weight: None, {"first": 0.0, "second": 0.0}),
    "one dropped": (lambda model, name, weight: name == "first" and _rows(model, name).copy_(weight), {"second": 0.0}),
    "in part": (
        lambda model, name, weight: _rows(model, name)[:2].copy_(weight[:2]),
        dict.fromkeys(("first", "second"), 2 / 3),
    ),
    "one row for all": (
        lambda model, name, weight: _rows(model, name).copy_(weight[:1].expand(3, 4)),
        dict.fromkeys(("first", "second"), 1 / 3),
    ),
    "computed and dropped": (lambda model, name, weight: weight.exp(), {"first": 0.0, "second": 0.0}),
    "copied elsewhere": (lambda model, name, weight: torch.empty(3, 4).copy_(weight), {"first": 0.0, "second": 0.0}),
}


@pytest.mark.parametrize("how", LOADS)
def test_every_number_that_does_not_arrive_is_reported(how):
    load, expected = LOADS[how]
    assert _arrived(load, [("first", HALF.clone()), ("second", HALF + 1)]) == pytest.approx(expected)


def test_a_buffer_is_a_place_too():
    assert _arrived(lambda model, _, weight: model.scale.copy_(weight), [("scale", torch.ones(3))]) == {}


def test_reused_memory_of_a_freed_weight_is_not_mistaken_for_the_weight():
    """An allocator gives the memory of a weight that was dropped to the next tensor."""

    def weights():
        for name in ("first", "second"):
            yield name, HALF.clone()
            gc.collect()

    def load(model: nn.Module, name: str, weight: torch.Tensor) -> None:
        if name == "second":
            del weight
            for _ in range(8):
                _rows(model, "first").copy_(torch.full((3, 4), 2.0))

    assert _arrived(load, weights()) == {"first": 0.0, "second": 0.0}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([View((3, 4), (4, 1), 0)], True),
        ([View((1, 4), (4, 1), 0), View((2, 4), (4, 1), 4)], True),
        ([View((2, 4), (4, 1), 0), View((2, 4), (4, 1), 4)], False),
        ([View((3, 4), (0, 1), 0)], False),
        ([View((3, 4), (4, 1), 0), View((3, 4), (4, 1), 0)], False),
        ([], False),
    ],
)
def test_parts_cover_a_tensor_once(parts, expected):
    assert covers_once(parts, (3, 4)) is expected
