"""A copy has the same numbers, and keeps them when the state goes on."""

from typing import Any

import torch

from rl_core.checkpoints.host_copy import HostCopies


def state() -> dict[str, Any]:
    weight = torch.arange(6.0).reshape(2, 3)
    part = torch.arange(10, dtype=torch.int16)[3:5]
    return {
        "a": {"weight": weight, "tied": weight.detach(), "turned": weight.T},
        "part": part,
        "steps": 3,
        "none": None,
    }


def test_a_host_copy_is_equal_and_does_not_change_with_the_original():
    original, expected = state(), state()
    copied = HostCopies().of("model", original)
    for tensor in (original["a"]["weight"], original["part"]):
        tensor.zero_()
    assert (copied["steps"], copied["none"]) == (3, None)
    assert torch.equal(copied["part"], expected["part"])
    for name, value in expected["a"].items():
        assert torch.equal(copied["a"][name], value) and copied["a"][name].stride() == value.stride(), name


def test_tied_weights_are_copied_once_and_a_part_without_its_rest():
    copied = HostCopies().of("model", state())
    assert copied["a"]["weight"] is copied["a"]["tied"]
    assert copied["part"].untyped_storage().nbytes() == copied["part"].nbytes


def test_the_next_copy_takes_the_memory_of_the_last_one_of_its_name_and_form():
    copies = HostCopies()
    first = copies.of("model", {"weight": torch.ones(3)})["weight"]
    assert copies.of("optimizer", {"weight": torch.zeros(3)})["weight"].data_ptr() != first.data_ptr()
    again = copies.of("model", {"weight": torch.full((3,), 2.0)})["weight"]
    assert again.data_ptr() == first.data_ptr() and torch.equal(again, torch.full((3,), 2.0))
    for other in (torch.ones(4), torch.ones(3, dtype=torch.bfloat16)):
        assert torch.equal(copies.of("model", {"weight": other})["weight"], other)
