"""Reading a configuration: inheritance, overrides, refusals, and the way back to YAML."""

import operator
import os
import re
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue, ValidationError

from rl_core.config.loading import ConfigError, dump_config, load_config, validate_config
from rl_core.config.other_names import OTHER_NAMES
from rl_core.config.run import RunConfig
from rl_core.config.yaml_text import dump_yaml, parse_yaml
from rl_core.digests import digest_of
from rl_core.section import SECRET_ERROR
from tests.processes import printed_by

REPOSITORY = Path(__file__).parents[3]
SHIPPED = sorted(path for path in (REPOSITORY / "configs").rglob("*.yaml") if path.parent.name != "shared")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_shipped_config_loads(path):
    assert isinstance(load_config(path), RunConfig)


def test_extends_lays_a_file_over_another_key_by_key(small, tmp_path):
    child = tmp_path / "below" / "child.yaml"
    child.parent.mkdir()
    child.write_text("extends: ../small.yaml\nactor: {optim: {lr: 1e-4}}\ndata: {train: {size: 16}}\n")
    config, parent = load_config(child), load_config(small)
    assert config.actor.optim.lr == 1e-4
    assert config.data.train.size == 16
    assert config.data.train.scene_seed == 1
    assert config.data.validation == parent.data.validation


def test_a_section_of_another_type_replaces_the_extended_one_whole(small, tmp_path):
    child = tmp_path / "child.yaml"
    child.write_text("extends: small.yaml\ndata: {train: {type: local, path: rows.jsonl}}\n")
    assert load_config(child).data.train.path == "rows.jsonl"


def test_a_circle_of_extends_is_refused_with_its_path(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(ConfigError, match=r"circle: .*a\.yaml -> .*b\.yaml -> .*a\.yaml"):
        load_config(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: nowhere.yaml\n", "no config file .*nowhere.yaml"),
        ("extends: [a.yaml, b.yaml]\n", "`extends:` must be the path of one config file"),
        ("- a list\n", "must hold a mapping of sections, not list"),
        ("", "must hold a mapping of sections, not NoneType"),
        ("a: [1\n", r"is not YAML that can be read: line 2, column 1: expected ',' or ']'"),
    ],
)
def test_a_file_that_is_no_config_is_named_with_the_reason(tmp_path, text, message):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


def test_a_repeated_key_is_named_with_its_lines(small):
    small.write_text(small.read_text() + "actor:\n  optim: {lr: 1e-6}\n  global_batch_size: 8\nactor: {}\n")
    with pytest.raises(ConfigError, match=r"small\.yaml .* line 11, column 1: the key `actor` .* first in line 8"):
        load_config(small)


@pytest.fixture
def odd_paths(tmp_path) -> Path:
    """A folder with things that are no files, or lead to none."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "one.yaml").symlink_to("other.yaml")
    (tmp_path / "other.yaml").symlink_to("one.yaml")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pipe.yaml", "it is a named pipe"),
        ("one.yaml", "its symbolic links form a circle"),
        ("gone.yaml", "nothing is there"),
        (f"{'long' * 100}.yaml", "the name is too long"),
        ("a\0b.yaml", "the name contains a character that"),
    ],
)
@pytest.mark.parametrize("is_extended", [False, True])
def test_a_path_that_is_no_config_file_is_named_with_the_reason(odd_paths, name, why, *, is_extended):
    path = odd_paths / name
    if is_extended:
        path = odd_paths / "child.yaml"
        path.write_text(dump_yaml({"extends": name}))
    with pytest.raises(ConfigError) as refusal:
        load_config(path)
    message = str(refusal.value)
    assert message.startswith("no config file ") and why in message
    assert (f"`extends:` of {path} names it" in message) == is_extended
    assert message.isprintable() and len(message) < 1000


@pytest.mark.parametrize("written", ["1:30", "9" * 40, "~"])
@pytest.mark.parametrize("is_override", [False, True])
def test_a_value_that_is_no_seed_is_refused_with_its_key_or_place(small, tmp_path, written, *, is_override):
    child = tmp_path / "child.yaml"
    child.write_text("extends: small.yaml\n" + ("" if is_override else f"seed: {written}\n"))
    with pytest.raises(ConfigError, match=r"seed: |override 'seed=|line 2, column 7: "):
        load_config(child, [f"seed={written}"] if is_override else [])


def test_a_number_for_a_text_is_refused_with_the_way_to_write_it(small):
    with pytest.raises(ConfigError, match=r"data\.prompt_template: .* \(got 12\); a text that looks like a number"):
        load_config(small, ["data.prompt_template=12"])


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("actor.optim.lr=1e-6", "actor.optim.lr", 1e-6),
        ("actor.optim.betas=[0.8, 0.95]", "actor.optim.betas", (0.8, 0.95)),
        ("data.prompt_template=a=b.jinja", "data.prompt_template", "a=b.jinja"),
        ("cold_start.steps=5", "cold_start.steps", 5),
        ("data.train={type: local, path: x.parquet}", "data.train.path", "x.parquet"),
    ],
)
def test_an_override_sets_one_key(small, override, key, value):
    assert operator.attrgetter(key)(load_config(small, [override])) == value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "must read key.path=value"),
        ("=3", "must read key.path=value"),
        ("data..seed=3", "a name is missing beside a dot of the key"),
        ("seed.deeper=3", "'seed' is a value, not a section"),
        ("seed=[1", "the value is not YAML that can be read"),
    ],
)
def test_an_override_that_makes_no_sense_is_refused(small, override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(small, ["seed=1", override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rolout.n=4", "rolout: unknown key; did you mean `rollout`?"),
        ("actor.optim.learning_rat=1", "actor.optim.learning_rat: unknown key; valid keys here: lr, betas"),
        ("data.train.sizes=1", "data.train.sizes: unknown key; did you mean `size`?"),
        (
            "cold_start={steps: 1, source: {type: local, pat: x}}",
            "cold_start.source.pat: unknown key; did you mean `path`?",
        ),
        ("lr=1", "lr: unknown key; did you mean `cold_start.optim.lr` or `actor.optim.lr` or `critic.optim.lr`?"),
        ("actor.lr=1", "actor.lr: unknown key; did you mean `actor.optim.lr` or"),
        ("learning_rate=1", "learning_rate: unknown key; here it is `actor.optim.lr`"),
        ("cold_start={steps: 1, optim: {learning_rate: 1}}", "learning_rate: unknown key; did you mean `lr`?"),
        ("gradient_accumulation_steps=2", "here it is `actor.global_batch_size`, prompts of an optimizer step"),
        ("model.source.path=x", "unknown key; it belongs to type: pretrained; set `model.source.type` too"),
        (
            "algorithm.advantage={type: rloo, lam: 1}",
            "algorithm.advantage.lam: unknown key; it belongs to type: gae; set `algorithm.advantage.type` too",
        ),
        ("data.train.size=0", "data.train.size: Input should be greater than or equal to 1 (got 0)"),
        ("actor.optim.lr=.nan", "actor.optim.lr: Input should be a finite number (got nan)"),
        ("evaluation.modes=[gredy]", "evaluation.modes.0: Input should be 'greedy' or 'sampled' (got 'gredy')"),
        ("model.source.type=huge", "model.source: Input tag 'huge' found"),
        ("rollout.gpu_memory_utilization=0", "rollout.gpu_memory_utilization: Input should be greater than 0 (got 0)"),
        ("model.gradient_checkpointing=often", "model.gradient_checkpointing: Input should be 'auto' (got 'often')"),
    ],
)
def test_a_refused_key_is_named_as_the_user_wrote_it(small, override, message):
    with pytest.raises(ConfigError) as refusal:
        load_config(small, [override])
    assert message in str(refusal.value)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_every_suggested_key_for_another_projects_name_exists(small, name):
    """The message of each key that the table names would be another one if there were no such key."""
    for key in re.findall(r"`([\w.]+)", OTHER_NAMES[name]):
        with pytest.raises(ConfigError) as refusal:
            load_config(small, ["model.source={type: pretrained, path: x}", f"{key}={{surely: [no value]}}"])
        assert f"{key}: unknown key" not in str(refusal.value)


def test_a_key_below_a_name_of_the_users_own_is_named_with_it(small):
    mixture = "{type: mixture, sources: {mine: {type: local, path: a.jsonl, pth: b}}}"
    with pytest.raises(ConfigError, match=r"data.train.sources.mine.pth: unknown key; did you mean `path`\?"):
        load_config(small, [f"data.train={mixture}"])


def test_a_part_of_a_mixture_can_be_overridden(small):
    mixture = "{type: mixture, sources: {mine: {type: local, path: a.jsonl}}}"
    config = load_config(small, [f"data.train={mixture}", "data.train.sources.mine.limit=3"])
    assert config.data.train.sources["mine"].limit == 3


def test_all_refused_keys_are_reported_at_once(small):
    with pytest.raises(ConfigError) as refusal:
        load_config(small, ["seed=-1", "rollout.n=0", "tracking.color=red"])
    lines = str(refusal.value).splitlines()
    assert lines[0].endswith("3 problem(s)")
    assert sorted(line.split(":")[0].strip() for line in lines[1:]) == ["rollout.n", "seed", "tracking.color"]


def test_a_digest_belongs_to_the_values_and_not_to_how_they_were_written(small):
    config = load_config(small)
    reordered = dict(reversed(yaml.safe_load(small.read_text()).items())) | {"paths_from": [str(small.parent)]}
    assert digest_of(validate_config(reordered, "reordered")) == digest_of(config)
    assert digest_of(load_config(small, ["rollout.n=8"])) == digest_of(config), "a default written out changes nothing"
    assert digest_of(load_config(small, ["rollout.n=4"])) != digest_of(config)


def test_a_digest_stays_the_same_for_ever():
    # Computed once by hand with sha256sum: a changed rule would orphan every run folder there is.
    assert digest_of({"b": [1, 2.5, None], "a": "ü"}) == "91ff63a7ddb1"


def test_configuration_and_planning_load_no_model_library():
    code = "import sys, rl_core.config.loading, rl_core.planning.rules; print(*sys.modules)"
    loaded = set(printed_by(code).split())
    assert "rl_core.config.loading" in loaded
    assert not loaded & {"torch", "transformers", "vllm", "prefect", "mlflow"}


def test_an_override_of_a_section_leaves_its_alias_as_it_is(small):
    aliased = "actor: {optim: &rates {lr: 1.0e-4, betas: [0.9, 0.95]}}\ncritic: {optim: *rates}\n"
    small.write_text(small.read_text() + aliased)
    config = load_config(small, ["critic.optim.lr=3.0e-4"])
    assert config.critic is not None
    assert (config.actor.optim.lr, config.critic.optim.lr) == (1.0e-4, 3.0e-4)
    assert config.actor.optim.betas == config.critic.optim.betas == (0.9, 0.95)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


def values_of(annotation: Any, bounds: list[Any]) -> st.SearchStrategy[Any]:
    """Every value that a field of that type and those bounds may have."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation == JsonValue:
        return JSON_VALUES
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return configs_of(annotation)
    if origin is Annotated:
        return values_of(arguments[0], [*bounds, *arguments[1:]])
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(argument, bounds) for argument in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0], []), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values_of(argument, []) for argument in arguments))
    if origin is dict:
        fewest = max((getattr(bound, "min_length", 0) for bound in bounds), default=0)
        return st.dictionaries(st.text(), values_of(arguments[1], []), min_size=fewest, max_size=2)
    return scalars_of(annotation, bounds)


def scalars_of(annotation: Any, bounds: list[Any]) -> st.SearchStrategy[Any]:
    def bound(name: str, absent: Any = None) -> Any:
        return next((getattr(bound, name) for bound in bounds if getattr(bound, name, None) is not None), absent)

    if annotation is str and bound("pattern"):
        return st.from_regex(bound("pattern"), fullmatch=True).filter(lambda text: len(text) <= bound("max_length", 60))
    if annotation is str:
        return st.text(min_size=bound("min_length", 0), max_size=bound("max_length"))
    if annotation is int:
        step = bound("multiple_of", 1)
        lowest, highest = bound("ge", -(2**63) + 1), bound("le", 2**63 - 1)
        return st.integers(-(-lowest // step), highest // step).map(lambda number: number * step)
    if annotation is float:
        lowest, highest = bound("ge", bound("gt")), bound("le", bound("lt"))
        open_ends = {"exclude_min": bound("gt") is not None, "exclude_max": bound("lt") is not None}
        return st.floats(lowest, highest, allow_nan=False, allow_infinity=False, **open_ends)
    return st.from_type(annotation)


def configs_of(section: type[BaseModel]) -> st.SearchStrategy[Any]:
    fields = {name: values_of(field.annotation, field.metadata) for name, field in section.model_fields.items()}
    return st.fixed_dictionaries(fields).map(lambda values: validated(section, values))


def validated(section: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """The section; values that a validator of its own refuses, a text that is no pattern or a key that names a secret,
    are drawn again."""
    try:
        return section.model_validate(values)
    except ValidationError as error:
        if all(problem["type"] in {"value_error", SECRET_ERROR} for problem in error.errors()):
            reject()
        raise


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(config=configs_of(RunConfig))
def test_a_dumped_config_loads_to_an_equal_one_with_the_same_digest(config):
    again = validate_config(parse_yaml(dump_config(config)), "dumped")
    assert again == config
    assert digest_of(again) == digest_of(config)
