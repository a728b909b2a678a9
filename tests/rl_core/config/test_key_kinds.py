"""Every key has one kind, and the table names none that does not exist."""

from pathlib import Path

from rl_core.config.key_kinds import LAST_BITS, LENGTH, OPERATION, changed_keys, dotted, is_of, recipe_of
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig

FULL = [
    "critic={cliprange_value: 0.2}",
    "algorithm.advantage={type: gae}",
    "algorithm.online_filtering={type: bounds}",
    "storage={address: /mnt/share}",
    "planning={mean_response_length: 8}",
    "tools={use: [calculator]}",
]


def config(*overrides: str) -> RunConfig:
    return load_config(Path(__file__).parents[3] / "configs" / "quickstart.yaml", overrides)


def test_the_table_names_keys_and_sections_that_there_are() -> None:
    keys = set(dict(dotted(config(*FULL).model_dump(mode="json"))))
    sections = {".".join(key.split(".")[:length]) for key in keys for length in range(1, key.count(".") + 2)}
    assert sections | {"published"} >= LENGTH | OPERATION
    assert LAST_BITS <= OPERATION and not LENGTH & OPERATION


def test_the_recipe_holds_every_other_key() -> None:
    whole = config(*FULL)
    kept = set(dict(dotted(recipe_of(whole))))
    others = {key for key in dict(dotted(whole.model_dump(mode="json"))) if not is_of(LENGTH | OPERATION, key)}
    assert kept == others - {"experiment"}


def test_changed_keys_are_named_with_both_values() -> None:
    before, now = config(), config("actor.optim.lr=0.5", "trainer.max_steps=7")
    changes = {key: new for key, _, new in changed_keys(before, now)}
    assert changes == {"actor.optim.lr": 0.5, "trainer.max_steps": 7}
