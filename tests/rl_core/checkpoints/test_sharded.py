"""Sharded tensors come back to the bit, on one worker or several, and run no code."""

import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from rl_core.checkpoints.sharded import (
    MismatchedState,
    load_model_state,
    load_optimizer_state,
    load_sharded,
    model_state,
    optimizer_state,
    save_sharded,
)
from rl_core.digests import folder_records
from tests.rl_core.bomb import Bomb


class TwoPaths(nn.Module):
    """A model of which a batch may use one part only, as a text batch leaves a vision tower alone."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.text = nn.Linear(6, 4)
        self.vision = nn.Linear(6, 4)
        self.tied = nn.Linear(6, 4)
        self.tied.weight = self.text.weight
        self.register_buffer("scale", torch.rand(3))


def adamw(model: nn.Module) -> torch.optim.AdamW:
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    return torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], lr=1e-2, fused=True)


def train(model: TwoPaths, optimizer: torch.optim.Optimizer, steps: int, seed: int, *, vision: bool = False) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        inputs = torch.randn(5, 6, generator=generator)
        output = model.text(inputs) + model.tied(inputs)
        if vision:
            output = output + model.vision(inputs)
        output.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def bits(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, bytes]:
    tensors = dict(model.state_dict())
    for name, entries in optimizer_state(model, optimizer).items():
        tensors |= {f"{name}.{entry}": value for entry, value in entries.items()}
    return {name: value.numpy().tobytes() for name, value in tensors.items()}


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    save_sharded(folder / "model", model_state(model))
    save_sharded(folder / "optimizer", optimizer_state(model, optimizer))


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    load_model_state(folder / "model", model)
    load_optimizer_state(folder / "optimizer", model, optimizer)


@pytest.mark.parametrize("vision", [False, True])
@pytest.mark.parametrize("trained_before_loading", [False, True])
def test_training_continues_from_a_checkpoint_as_if_nothing_had_happened(tmp_path, *, vision, trained_before_loading):
    """Also when the new optimizer already had state that the checkpoint has not, and the other way round."""
    model = TwoPaths(1)
    optimizer = adamw(model)
    train(model, optimizer, 3, seed=1, vision=vision)
    save(tmp_path, model, optimizer)

    resumed = TwoPaths(2)
    resumed_optimizer = adamw(resumed)
    if trained_before_loading:
        train(resumed, resumed_optimizer, 2, seed=9, vision=True)
    load(tmp_path, resumed, resumed_optimizer)
    assert bits(resumed, resumed_optimizer) == bits(model, optimizer)

    for each, its_optimizer in ((model, optimizer), (resumed, resumed_optimizer)):
        train(each, its_optimizer, 3, seed=2, vision=True)
    assert bits(resumed, resumed_optimizer) == bits(model, optimizer)


def test_saving_an_optimizer_that_never_stepped_changes_nothing_and_loads_as_fresh(tmp_path):
    """torch's get_optimizer_state_dict takes a step to make the state that it saves."""
    model = TwoPaths(1)
    optimizer = adamw(model)
    save(tmp_path, model, optimizer)
    assert not optimizer.state
    other = TwoPaths(1)
    other_optimizer = adamw(other)
    train(other, other_optimizer, 1, seed=3)
    load(tmp_path, other, other_optimizer)
    assert not other_optimizer.state


def test_equal_states_give_equal_files_wherever_they_lie(tmp_path):
    for name in ("a", "another/folder"):
        model = TwoPaths(1)
        optimizer = adamw(model)
        train(model, optimizer, 2, seed=1)
        save(tmp_path / name, model, optimizer)
    assert folder_records(tmp_path / "a") == folder_records(tmp_path / "another/folder")


def test_every_number_format_and_plain_value_comes_back_equal(tmp_path):
    odd = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45], dtype=torch.float32)
    tensors = {str(dtype): odd.to(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)}
    tensors["integers"] = torch.tensor([2**62, -1])
    tensors["scalar"] = torch.tensor(3.5)
    tensors["transposed"] = torch.arange(6.0).reshape(2, 3).T
    save_sharded(tmp_path, {"tensors": tensors, "plain": {"steps": 3, "rate": 0.1, "names": ["a", "b"], "none": None}})
    state = {
        "tensors": {name: torch.zeros_like(value) for name, value in tensors.items()},
        "plain": {"steps": 0, "rate": 0.0, "names": [], "none": 1},
    }
    load_sharded(tmp_path, state)
    assert state["plain"] == {"steps": 3, "rate": 0.1, "names": ["a", "b"], "none": None}
    for name, value in tensors.items():
        loaded = state["tensors"][name]
        assert loaded.contiguous().view(-1).view(torch.uint8).equal(value.contiguous().view(-1).view(torch.uint8)), name


def test_a_state_that_does_not_fit_is_named_and_never_cast(tmp_path):
    save_sharded(tmp_path, {"a": torch.ones(2), "b": torch.ones(3), "c": torch.ones(1)})
    state = {"a": torch.zeros(2, dtype=torch.bfloat16), "b": torch.zeros(4), "d": torch.zeros(1)}
    with pytest.raises(MismatchedState) as mismatch:
        load_sharded(tmp_path, state)
    message = str(mismatch.value)
    assert "a was saved as float32[2] and is bfloat16[2] here" in message
    assert "b was saved as float32[3] and is float32[4] here" in message
    assert "c is only in the checkpoint" in message
    assert "d is not in the checkpoint" in message
    assert not state["a"].any()


def after_a_step() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(6, 4)
    optimizer = adamw(model)
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_equal_optimizer_states_make_equal_files_in_whichever_order_their_entries_came(tmp_path):
    """The entries of a state that several ranks have written come back in another order."""
    model, optimizer = after_a_step()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        save_sharded(tmp_path / name, optimizer_state(model, optimizer))
        for parameter, entries in optimizer.state.items():
            optimizer.state[parameter] = dict(reversed(entries.items()))
    assert folder_records(tmp_path / "one") == folder_records(tmp_path / "other")


def test_optimizer_state_of_another_model_is_refused(tmp_path):
    model, optimizer = after_a_step()
    save_sharded(tmp_path, optimizer_state(model, optimizer))
    other = TwoPaths(1)
    with pytest.raises(MismatchedState, match="for which the model has no parameter"):
        load_optimizer_state(tmp_path, other, adamw(other))


def test_code_in_the_metadata_or_in_a_plain_value_is_refused_and_not_run(tmp_path):
    target = tmp_path / "executed"
    save_sharded(tmp_path / "values", {"value": Bomb(target)})
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        load_sharded(tmp_path / "values", {"value": None})
    save_sharded(tmp_path / "metadata", {"value": 1})
    (tmp_path / "metadata" / ".metadata").write_bytes(pickle.dumps(Bomb(target)))
    with pytest.raises(pickle.UnpicklingError, match="which is not allowed there"):
        load_sharded(tmp_path / "metadata", {"value": None})
    assert not target.exists()


def test_metadata_that_names_a_file_elsewhere_is_refused(tmp_path):
    save_sharded(tmp_path / "state", {"weight": torch.ones(3)})
    (tmp_path / "state" / "__0_0.distcp").rename(tmp_path / "__0_0.distcp")
    metadata = tmp_path / "state" / ".metadata"
    content = pickle.loads(metadata.read_bytes())
    for place in content.storage_data.values():
        place.relative_path = "../__0_0.distcp"
    metadata.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match="does not name a file below"):
        load_sharded(tmp_path / "state", {"weight": torch.zeros(3)})
