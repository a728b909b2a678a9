"""Which keys of a config make another run, and which may change while a run goes on: the one table of it.

A key that stands in neither mapping belongs to the *recipe*: it changes what is learned or measured, and another value
of it is another run.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rl_core.config.run import RunConfig

Tree = dict[str, Any]

LENGTH: Final = frozenset({"trainer.max_steps", "trainer.total_epochs", "trainer.stop_at"})
"""Keys that say when the training ends: the same run, shorter or longer."""

LAST_BITS: Final = frozenset(
    {
        *(f"{owner}.micro_batch_size_per_device_for_update" for owner in ("actor", "critic")),
        *(f"{owner}.micro_batch_size_per_device_for_experience" for owner in ("actor", "critic")),
        *("model.log_prob_chunk_tokens", "model.gradient_checkpointing"),
        *("rollout.gpu_memory_utilization", "rollout.cpu_kv_cache_gib", "rollout.max_num_seqs"),
        *("rollout.enforce_eager", "tools.schedule", "cluster"),
    }
)
"""Operations with another order of sums: they change the last bits of the numbers."""

OPERATION: Final = LAST_BITS | frozenset(
    {
        *("data.max_bad_share", "algorithm.online_filtering.max_try_make_batch"),
        *("reward.workers", "reward.async_calls", "reward.timeout_seconds", "reward.batch_timeout_seconds"),
        *("reward.load_timeout_seconds", "reward.memory_limit_gib", "reward.max_failed_share"),
        *("tools.workers", "tools.async_calls", "tools.timeout_seconds", "tools.load_timeout_seconds"),
        *("tools.memory_limit_gib", "tools.max_failed_share"),
        *("rollout.max_log_prob_gap", "rollout.max_mean_log_prob_gap", "rollout.min_log_prob_correlation"),
        *("trainer.val_freq", "trainer.val_before_train", "trainer.save_freq", "trainer.save_on_epoch_end"),
        *("trainer.save_limit", "trainer.save_model_only", "trainer.async_save", "trainer.offload"),
        *("trainer.max_nonfinite_steps", "trainer.stop_without_signal"),
        *("merge.push", "merge.probe_tolerance"),
        *("paths_from", "tracking", "storage", "planning", "published"),
    }
)
"""Keys, and whole sections, that say how and where a run is carried out, and what is kept and shown of it: the same
run, from the next start on."""


def recipe_of(config: RunConfig) -> Tree:
    """The config's JSON values without the keys of length and operation, and without the name of the experiment."""
    return _without(_settings(config), LENGTH)


def measured_recipe_of(config: RunConfig) -> Tree:
    """The same with the keys of the length, on which a run's results depend."""
    return _settings(config)


def changed_keys(before: RunConfig, now: RunConfig) -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, former value, present value) of each key with another value."""
    old, new = (dict(dotted(config.model_dump(mode="json"))) for config in (before, now))
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def is_of(keys: frozenset[str], key: str) -> bool:
    """Whether one of the `keys` is this dotted key, or a section that holds it."""
    parts = key.split(".")
    return any(".".join(parts[:length]) in keys for length in range(1, len(parts) + 1))


def dotted(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of each value of a tree that is no section."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _settings(config: RunConfig) -> Tree:
    return _without(config.model_dump(mode="json", exclude={"experiment"}), OPERATION)


def _without(tree: Mapping[str, Any], keys: frozenset[str], prefix: str = "") -> Tree:
    return {
        name: _without(value, keys, f"{prefix}{name}.") if isinstance(value, Mapping) else value
        for name, value in tree.items()
        if f"{prefix}{name}" not in keys
    }
