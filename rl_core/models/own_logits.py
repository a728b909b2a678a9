"""From hidden states to logits as the model's own class computes them.

Most classes apply the output embedding and nothing else. Others divide the hidden states before it (MiniCPM), or scale
or cap the logits after it (Cohere, Granite, Gemma), each under names of its own in the config. So the rule is not
written here a second time: it is the forward method of the class, behind a body that returns given hidden states.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

_Head = Callable[[torch.Tensor], torch.Tensor]


def is_head_alone(model: PreTrainedModel) -> bool:
    """Whether the logits are those of the output embedding. Raises ValueError if the class does not use it."""
    probe = _ProbedHead(model.get_output_embeddings().weight)
    hidden = torch.linspace(-3.0, 3.0, 2 * probe.weight.shape[1]).view(2, -1).to(probe.weight.dtype)
    logits = _forward(model, hidden, head=probe)
    if probe.received is None:
        raise ValueError(f"{type(model).__name__} does not call its output embedding; train a model of another family")
    return torch.equal(probe.received[0], hidden) and torch.equal(logits, probe.returned)


def own_logits(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """[K, width] -> [K, V] by the model's own forward method."""
    return _forward(model, hidden, head=model.get_output_embeddings())


def body_of(model: PreTrainedModel) -> PreTrainedModel:
    """The part of a model that computes hidden states. A few classes name it otherwise than their prefix says."""
    body: PreTrainedModel = model.base_model if model.base_model is not model else model.get_submodule("model")
    return body


def _forward(model: PreTrainedModel, hidden: torch.Tensor, *, head: _Head) -> torch.Tensor:
    method = inspect.unwrap(type(model).forward)
    logits: torch.Tensor = method(_ModelBehind(model, hidden[None], head)).logits[0]
    return logits


class _ModelBehind:
    """A model whose body has already computed these hidden states, [1, K, width]."""

    def __init__(self, model: PreTrainedModel, hidden: torch.Tensor, head: _Head) -> None:
        self._model, self._hidden, self._head = model, hidden, head

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._model, name)
        if value is body_of(self._model):
            return _Body(value, self._hidden)
        return self._head if value is self._model.get_output_embeddings() else value


class _Body:
    def __init__(self, body: nn.Module, hidden: torch.Tensor) -> None:
        self._body, self._hidden = body, hidden

    def __call__(self, *_args: Any, **_options: Any) -> "_BodyOutput":
        return _BodyOutput([self._hidden])

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._body, name)
        return _Body(value, self._hidden) if isinstance(value, nn.Module) else value  # OPT calls its decoder


class _BodyOutput(tuple[torch.Tensor, ...]):
    """Hidden states, and None for all else that a class may hand on."""

    __slots__ = ()

    @property
    def last_hidden_state(self) -> torch.Tensor:
        return self[0]

    def __getattr__(self, name: str) -> None:
        return None


class _ProbedHead:
    """Keeps what it gets, and returns logits of all sizes."""

    def __init__(self, weight: nn.Parameter) -> None:
        self.weight = weight
        self.received: torch.Tensor | None = None
        self.returned = torch.linspace(-60.0, 60.0, 2 * len(weight)).view(2, -1)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """[1, 2, width] -> [1, 2, V]."""
        self.received = hidden
        return self.returned[None]
