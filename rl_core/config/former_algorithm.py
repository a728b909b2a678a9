"""The section `algorithm` as it was written before losses and estimators had sections of their own.

`{adv_estimator: gae, lam: 0.95, loss_type: default, clip_ratio_high: 0.28}` is now
`{advantage: {type: gae, lam: 0.95}, loss: {type: ppo, clip_ratio_high: 0.28}}`. Configs in the former form are still
read, and digests are still made of the former form, so that the stages of older runs are recognised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from rl_core.algorithms.estimators import ESTIMATORS
from rl_core.algorithms.filters import BoundsFilter
from rl_core.algorithms.losses import LOSSES
from rl_core.section import TYPE, Choices, has_option, kind_of

Tree = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _FormerChoice:
    """How the choice of an estimator or a loss was written in the former form.

    Attributes:
        key: The section that holds the choice now.
        name: The former key that named the type.
        default: The type that a config had which did not name one.
        options: The former keys of the options of all types, with their defaults.
        kinds: Former name of each type -> its name now.
        choices: All types that can be chosen now.
    """

    key: str
    name: str
    default: str
    options: Mapping[str, float]
    kinds: Mapping[str, str]
    choices: Choices

    @property
    def keys(self) -> frozenset[str]:
        """Every former key of this choice."""
        return frozenset({self.name, *self.options})

    def section(self, tree: Tree) -> dict[str, Any]:
        """The section that the former keys in `tree` stand for."""
        former = tree.get(self.name, self.default)
        kind = self.kinds.get(former, former) if isinstance(former, str) else former
        given = [name for name in self.options if name in tree]
        return {TYPE: kind, **{name: tree[name] for name in given if has_option(self.choices, kind, name)}}

    def former(self, section: Tree) -> dict[str, Any] | None:
        """The former keys for a section; None for a section that the former form could not express."""
        kind = section.get(TYPE, self.kinds[self.default])
        names = {now: before for before, now in self.kinds.items()}
        options = {name: value for name, value in section.items() if name != TYPE}
        if not isinstance(kind, str) or kind not in names or options.keys() - self.options.keys():
            return None
        return ({self.name: names[kind]} if TYPE in section else {}) | options


_LOSS_NAMES: Final = ("gspo", "gspo_token", "cispo", "sapo")
_ESTIMATOR_NAMES: Final = (
    *("grpo", "dr_grpo", "grpo_passk", "rloo"),
    *("reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "gae"),
)

_CHOICES: Final = (
    _FormerChoice(
        key="loss",
        name="loss_type",
        default="default",
        options={
            "clip_ratio_low": 0.2,
            "clip_ratio_high": 0.3,
            "clip_ratio_dual": 3.0,
            "tau_positive": 1.0,
            "tau_negative": 1.05,
        },
        kinds={"default": "ppo", **{name: name for name in _LOSS_NAMES}},
        choices=LOSSES,
    ),
    _FormerChoice(
        key="advantage",
        name="adv_estimator",
        default="grpo",
        options={"gamma": 1.0, "lam": 1.0},
        kinds={name: name for name in _ESTIMATOR_NAMES},
        choices=ESTIMATORS,
    ),
)

_NOW: Final = MappingProxyType(
    {
        f"algorithm.{name}": f"algorithm.{choice.key}.{TYPE if name == choice.name else name}"
        for choice in _CHOICES
        for name in choice.keys
    }
)


def now_called(key: str) -> str:
    """The dotted key that replaced a former key; any other key is returned as it is."""
    return _NOW.get(key, key)


def former_keys(algorithm: Any) -> list[str]:
    """The former keys in a section `algorithm` as a config writes it."""
    return [name for name in algorithm if f"algorithm.{name}" in _NOW] if isinstance(algorithm, Mapping) else []


def upgraded(algorithm: Any) -> Any:
    """A section `algorithm` in today's form. A choice that is written in both forms is left alone: the validation
    refuses it."""
    if not isinstance(algorithm, Mapping):
        return algorithm
    tree = dict(algorithm)
    for choice in _CHOICES:
        given = choice.keys & tree.keys()
        if given and choice.key not in tree:
            tree[choice.key] = choice.section(algorithm)
            for name in given:
                del tree[name]
    return tree


def downgraded(algorithm: Any) -> Any:
    """A section `algorithm` in the former form, as far as that can express it."""
    if not isinstance(algorithm, Mapping):
        return algorithm
    tree = dict(algorithm)
    for choice in _CHOICES:
        section = tree.get(choice.key)
        if isinstance(section, Mapping) and (former := choice.former(section)) is not None:
            del tree[choice.key]
            tree |= former
    return tree


def digested(algorithm: Tree) -> dict[str, Any]:
    """The part of a dumped section `algorithm` that enters digests: its former form, with every default written out."""
    tree: dict[str, Any] = downgraded(algorithm)
    for choice in _CHOICES:
        if choice.name in tree:
            tree = {**choice.options, **tree}
    filtering = tree["online_filtering"]
    if filtering is not None and filtering[TYPE] == kind_of(BoundsFilter):
        tree["online_filtering"] = {name: value for name, value in filtering.items() if name != TYPE}
    return tree
