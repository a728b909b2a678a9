"""An import says the same run in Sightline's words, and names what it cannot say."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_core.config.loading import ConfigError
from rl_core.config.run import RunConfig
from sightline_tools.easyr1.importer import KEYS, Imported, import_easyr1
from sightline_tools.easyr1.values import CHOICES, OPTIONAL, read_value
from tests.sightline_tools.easyr1.example import every_key

Import = Callable[..., Imported]
SMALL = ["worker.rollout.tensor_parallel_size=1", "trainer.n_gpus_per_node=1"]
OPTIM = "worker.actor.optim.lr_warmup"
LORA, MODULES = "worker.actor.model.lora.rank=32", "worker.actor.model.lora.target_modules"
NO_OFFLOAD = ["worker.actor.offload.offload_params=false", "worker.actor.offload.offload_optimizer=false"]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like EasyR1's, the person elsewhere."""
    folder = tmp_path / "EasyR1"
    (folder / "examples" / "format_prompt").mkdir(parents=True)
    (folder / "examples" / "reward_function").mkdir()
    (folder / "examples" / "format_prompt" / "math.jinja").write_text("{{ content }} Put the answer into a box.")
    (folder / "examples" / "reward_function" / "math.py").write_text("def compute_score(inputs): ...\n")
    (folder / "examples" / "config.yaml").write_text(yaml.safe_dump(every_key()))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


@pytest.fixture
def importing(checkout: Path) -> Import:
    return lambda *overrides: import_easyr1(checkout / "examples" / "config.yaml", overrides)


def valid(imported: Imported) -> RunConfig:
    return RunConfig.model_validate(imported.tree)


def lost(imported: Imported) -> dict[str, str]:
    return {note.key: note.text for note in imported.lost}


def test_the_example_asks_for_nothing_in_vain_and_what_is_asked_for_in_vain_is_listed(importing: Import) -> None:
    assert lost(importing()) == {}
    assert set(lost(importing("worker.rollout.ignore_eos=true"))) == {"worker.rollout.ignore_eos"}


@pytest.mark.parametrize(
    ("overrides", "key", "value"),
    [
        (["algorithm.kl_coef=0"], "algorithm.kl", None),
        (["algorithm.kl_type=adaptive"], "algorithm.kl.adaptive", None),
        ([f"{OPTIM}_ratio=0.05", f"{OPTIM}_steps=0"], "actor.optim.lr_warmup_ratio", 0.0),
        (["worker.actor.fsdp.torch_dtype=null"], "model.dtype", "bfloat16"),
        (["worker.actor.fsdp.torch_dtype=fp32"], "model.dtype", "bfloat16"),
        ([LORA, f"{MODULES}='q_proj, v_proj'"], "model.lora.target_modules", ("q_proj", "v_proj")),
        ([LORA, f"{MODULES}=o_proj"], "model.lora.target_modules", ("o_proj",)),
        ([LORA, "worker.actor.model.freeze_vision_tower=true"], "model.freeze_vision_tower", False),
        (["trainer.experiment_name=  Über/alles!"], "experiment", "ber-alles"),
        (["worker.rollout.val_override_config={n: 16}"], "evaluation.temperature", 1.0),
    ],
)
def test_values_that_are_written_otherwise(importing: Import, overrides: list[str], key: str, value: Any) -> None:
    imported = importing(*SMALL, *NO_OFFLOAD, *overrides)
    assert lost(imported) == {}
    found: Any = valid(imported)
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value


def test_a_critic_with_another_body_is_named_where_there_is_a_critic(importing: Import) -> None:
    """EasyR1 has the section whatever the algorithm."""
    other = "worker.critic.model.model_path=owner/judge"
    with_critic = importing(*SMALL, *NO_OFFLOAD, "algorithm.adv_estimator=gae", other)
    assert set(lost(with_critic)) == {"worker.critic.model.model_path"}
    assert lost(importing(*SMALL, *NO_OFFLOAD, other)) == {}


@pytest.mark.parametrize(
    ("override", "key", "words"),
    [
        ("worker.rollout.top_p=0.95", "worker.rollout.top_p", "not possible in training"),
        ("worker.rollout.val_override_config={top_k: 5, n: 2}", "worker.rollout.val_override_config", "top_k"),
        ("worker.actor.optim.lr_warmup_ratio=1.0", "worker.actor.optim.lr_warmup_ratio", "less than 1"),
        ("trainer.save_limit=-1", "trainer.save_limit", "1 or more"),
        ("data.filter_overlong_prompts=false", "data.filter_overlong_prompts", "stops the preparation"),
        ("worker.rollout.dtype=fp32", "worker.rollout.dtype", "the same number format"),
        ("worker.rollout.max_model_len=4095", "worker.rollout.max_model_len", "the longest prompt with the longest"),
        ("trainer.critic_warmup=2", "trainer.critic_warmup", "without a critic"),
        ("trainer.find_last_checkpoint=false", "trainer.find_last_checkpoint", "--fresh"),
        ("worker.rollout.temperature=3", "worker.rollout.temperature", "keeps its default"),
        ("data.train_files=/gone/rows.parquet", "data.train_files", "no file or folder /gone/rows.parquet"),
        ("worker.actor.ulysses=2", "worker.actor.ulysses", "did you mean `worker.actor.ulysses_size`"),
        ("trainer.colour=2", "trainer.colour", "not a known key of EasyR1"),
        ("worker.actor.fsdp.torch_dtype=fp16", "worker.actor.fsdp.torch_dtype", "float32 or bfloat16"),
        ("worker.actor.fsdp.mp_param_dtype=fp16", "worker.actor.fsdp.mp_param_dtype", "float32 or bfloat16"),
        ("trainer.val_only=true", "trainer.val_only", "sightline evaluate"),
    ],
)
def test_values_without_an_equivalent_are_named_with_what_to_do(
    importing: Import, override: str, key: str, words: str
) -> None:
    imported = importing(*SMALL, *NO_OFFLOAD, override)
    assert set(lost(imported)) == {key}
    assert words.lower() in lost(imported)[key].lower()
    assert f"# no equivalent: {key} = " in imported.text("From EasyR1")


def test_settings_that_only_the_user_knows_are_left_to_be_set(checkout: Path) -> None:
    path = checkout / "empty.yaml"
    path.write_text("trainer: {total_epochs: 3}\n")
    imported = import_easyr1(path)
    assert imported.missing == ["data.train", "data.validation", "model.source.path"]
    assert "# set model.source.path\n" in imported.text("From EasyR1")


def test_local_data_and_the_folder_of_its_images_are_found_from_the_config(importing: Import, checkout: Path) -> None:
    (checkout / "rows").mkdir()
    (checkout / "rows" / "train.parquet").touch()
    imported = importing("data.train_files=rows/train.parquet@train", "data.image_dir=rows")
    train = valid(imported).data.train.model_dump()
    assert (train["type"], train["path"]) == ("local", str(checkout / "rows" / "train.parquet"))
    assert train["media_dir"] == valid(imported).data.validation.model_dump()["media_dir"] == str(checkout / "rows")


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_json_and_csv_are_taken_over_and_other_files_are_named(importing: Import, checkout: Path, kind: str) -> None:
    for name in (f"rows.{kind}", "rows.txt"):
        (checkout / name).touch()
    assert valid(importing(f"data.train_files=rows.{kind}")).data.train.model_dump()["path"].endswith(f"rows.{kind}")
    other = importing("data.train_files=rows.txt")
    assert "must end in one of .parquet, .jsonl, .json, .csv" in lost(other)["data.train_files"]
    assert other.missing == ["data.train"]


@pytest.fixture
def geo(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both splits, as somebody downloads it."""
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")
    folder = checkout / "geo"
    folder.mkdir()
    for split, rows in (("train", 3), ("test", 2)):
        table = {"problem": [f"{split} {row}" for row in range(rows)], "answer": ["1"] * rows}
        pq.write_table(pa.table(table), folder / f"{split}.parquet")
    return folder


@pytest.mark.parametrize(
    ("train", "test", "rows"),
    [
        ("geo@train", "geo@test", (3, 2)),
        ("geo", "geo@test", (3, 2)),
        ("geo@train[:1]", "geo@test", (1, 2)),
    ],
)
def test_a_folder_gives_the_split_that_is_asked_for(
    importing: Import, geo: Path, train: str, test: str, rows: tuple[int, int]
) -> None:
    """EasyR1's split is `train` where none is named."""
    imported = importing(*SMALL, *NO_OFFLOAD, f"data.train_files={train}", f"data.val_files={test}")
    assert lost(imported) == {}
    data = valid(imported).data
    assert (data.train.model_dump()["type"], data.train.model_dump()["columns"]["prompt_key"]) == ("hub", "problem")
    read = [[row.question for row in source.open()] for source in (data.train, data.validation)]
    assert read == [[f"train {row}" for row in range(rows[0])], [f"test {row}" for row in range(rows[1])]]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ("geo/train.parquet@train[:100]", "no split `train[:100]`, all of its rows are read; set data.train.limit"),
        ("geo/train.parquet@test", "no split `test`"),
        ("two words@train", "without spaces"),
    ],
)
def test_a_split_that_cannot_be_taken_over_is_listed(importing: Import, geo: Path, files: str, words: str) -> None:
    geo.with_name("two words").mkdir()
    imported = importing(*SMALL, *NO_OFFLOAD, f"data.train_files={files}")
    assert set(lost(imported)) == {"data.train_files"}
    assert words in lost(imported)["data.train_files"]


def test_a_secret_is_neither_listed_nor_written(importing: Import) -> None:
    imported = importing(
        "worker.reward.reward_function_kwargs={api_key: geheim, limit: 3}",
        "trainer.judge={api_key: geheim, address: 'http://u:geheim@h/'}",
    )
    assert {"worker.reward.reward_function_kwargs", "trainer.judge.api_key"} <= lost(imported).keys()
    assert "geheim" not in imported.text("From EasyR1") + "".join(map(str, imported.lost))
    assert "'limit': 3" in "".join(map(str, imported.lost))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("worker.actor.optim.lr=1e-6x", "worker.actor.optim.lr = 1e-6x: must be a number"),
        ("worker.actor.optim.lr=.inf", "worker.actor.optim.lr = inf: must be a number"),
        ("trainer.save_limit='[1'", "trainer.save_limit = [1: must be a whole number"),
        ("trainer.total_epochs=1.5", "trainer.total_epochs = 1.5: must be a whole number"),
        ("trainer.total_epochs=null", "trainer.total_epochs = None: must be a whole number"),
        ("worker.actor.optim.lr_warmup_steps=some", "worker.actor.optim.lr_warmup_steps = some: must be a whole"),
        ("worker.actor.optim.betas=[0.9]", "worker.actor.optim.betas = [0.9]: must be 2 numbers"),
        ("data.shuffle=maybe", "data.shuffle = maybe: must be true or false"),
        ("data.train_files=[a,b]", "data.train_files = ['a', 'b']: must be a text"),
        ("data.train_files=${data.val_files}", "names another key or variable"),
        ("algorithm.adv_estimator=grop", "'grop' is none of gae, grpo, grpo_passk"),
        ("algorithm.kl_penalty=k3", "'k3' is none of kl, abs, mse, low_var_kl, full"),
        ("worker.actor.loss_avg_mode=sideways", "'sideways' is none of token, seq"),
        ("worker.actor.loss_type=ppo", "'ppo' is none of default, gspo"),
        ("worker.actor.optim.lr_scheduler_type=linear", "'linear' is none of constant, cosine"),
        ("trainer.logger=[file, clearml]", "'clearml' is none of console, file"),
        ("worker.rollout.val_override_config=7", "must be a mapping of names and values"),
        ("data.format_prompt=./gone.jinja", "data.format_prompt = ./gone.jinja: there is no file ./gone.jinja here"),
        ("data.override_chat_template=gone", "data.override_chat_template = gone: there is no file gone here"),
        ("data.image_dir=gone", "data.image_dir = gone: there is no folder gone here"),
        ("worker.reward.reward_function=gone.py:f", "there is no file gone.py:f here"),
    ],
)
def test_values_that_easyr1_would_refuse_stop_the_import(importing: Import, override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"config\.yaml: 1 problem\(s\)\n  .*{re.escape(words)}"):
        importing(override)


def test_all_reasons_that_stop_the_import_are_named_at_once(importing: Import) -> None:
    with pytest.raises(ConfigError, match=r"3 problem\(s\)") as refusal:
        importing("worker.actor.optim.lr=1e-6x", "data.format_prompt=gone.jinja", "algorithm.adv_estimator=grop")
    assert all(name in str(refusal.value) for name in ("optim.lr", "format_prompt", "adv_estimator"))


def test_every_key_that_may_be_null_or_is_chosen_from_a_few_is_in_the_tables() -> None:
    assert {name for name, key in KEYS.items() if key.default is None} == set(OPTIONAL)
    assert set(CHOICES) <= set(KEYS)
    for name, key in KEYS.items():
        assert read_value(name, key.default, key.default) == (
            list(key.default) if isinstance(key.default, tuple) else key.default
        )


@pytest.mark.parametrize(
    ("text", "reward_type", "accuracy_key"),
    [
        ("def main(inputs): return {'overall': 1.0, 'accuracy': 1.0}", "batch", "accuracy"),
        ("REWARD_TYPE = 'sequential'\ndef main(inputs): return {'overall': 1.0}", None, "overall"),
        ('from other import REWARD_TYPE\ndef main(inputs): return {"accuracy": 1.0}', None, "accuracy"),
    ],
)
def test_the_reward_file_is_of_the_type_that_easyr1_takes_it_for(
    importing: Import, checkout: Path, text: str, reward_type: str | None, accuracy_key: str
) -> None:
    (checkout / "own.py").write_text(text)
    unnamed = [f"worker.reward.reward_function={checkout}/own.py", "worker.reward.reward_type=null"]
    config = valid(importing(*unnamed))
    assert (config.reward.reward_type, config.evaluation.accuracy_key) == (reward_type, accuracy_key)
    named = importing(*unnamed, "worker.reward.reward_type=sequential")
    assert valid(named).reward.reward_type == "sequential"
    differing = [note.text for note in named.differing if note.key == "worker.reward.reward_function"]
    assert any("does not contain the name `accuracy`" in text for text in differing) == (accuracy_key == "overall")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(KEYS)),
    value=st.sampled_from(["null", "many", "[1]", "-1", "0", "1.5", "{}", "{a: 1}"]),
    estimator=st.sampled_from(["grpo", "gae"]),
)
def test_every_value_is_imported_or_named_with_its_key(
    importing: Import, name: str, value: str, estimator: str
) -> None:
    with suppress_refusal_of(name):
        importing(f"algorithm.adv_estimator={estimator}", f"{name}={value}")


@contextmanager
def suppress_refusal_of(name: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as refusal:
        if f"config.yaml: 1 problem(s)\n  {name} = " not in str(refusal):
            raise
