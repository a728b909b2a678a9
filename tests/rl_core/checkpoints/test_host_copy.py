"""A copy has the same numbers, and keeps them when the state goes on."""

import torch

from rl_core.checkpoints.host_copy import host_copy


def state() -> dict[str, object]:
    weight = torch.arange(6.0).reshape(2, 3)
    part = torch.arange(10, dtype=torch.int16)[3:5]
    return {
        "a": {"weight": weight, "tied": weight.detach(), "turned": weight.T},
        "part": part,
        "steps": 3,
        "none": None,
    }


def test_it_is_equal_and_stays_as_it_was() -> None:
    original, expected = state(), state()
    copied = host_copy(original)
    for tensor in (original["a"]["weight"], original["part"]):
        tensor.zero_()
    assert (copied["steps"], copied["none"]) == (3, None)
    assert torch.equal(copied["part"], expected["part"])
    for name, value in expected["a"].items():
        assert torch.equal(copied["a"][name], value) and copied["a"][name].stride() == value.stride(), name


def test_tied_weights_are_copied_once_and_a_part_without_its_rest() -> None:
    copied = host_copy(state())
    assert copied["a"]["weight"] is copied["a"]["tied"]
    assert copied["part"].untyped_storage().nbytes() == copied["part"].nbytes
