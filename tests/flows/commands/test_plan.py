"""`sightline plan` is complete, and refuses what cannot work."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.commands.plan import conversation_words, threads_words
from rl_core import environment
from rl_core.config.cluster import ClusterConfig
from rl_core.config.loading import load_config
from rl_core.planning.batches import longest_sequence, longest_tree
from tests.rl_core.planning.gpu_driver import put_driver

ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.usefixtures("at_the_root")


def plan(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plan", "configs/quickstart.yaml", *arguments])
    return done.exit_code, done.output


def test_a_plan_shows_stages_batches_and_forecast(tmp_path: Path) -> None:
    code, text = plan("--runs-dir", str(tmp_path))
    assert code == 0
    text = " ".join(text.split())
    for part in (
        "train-epoch-002",
        "2048 rows / 64 = 32 steps",
        "512 responses",
        "GiB",
        "float32 throughout",
        "engine: eager (auto, on a CPU)",
        "attention: sdpa (auto: there is no NVIDIA GPU)",
    ):
        assert part in text, part
    assert f"threads: {threads_words(ClusterConfig())}" in text
    assert "experiment: quickstart" not in text
    _, text = plan("--config", "--runs-dir", str(tmp_path))
    assert text.index("report") < text.index("experiment: quickstart"), "what matters comes first"


def test_a_plan_tries_the_reward_if_asked(tmp_path: Path) -> None:
    code, text = plan("--runs-dir", str(tmp_path), "--try-reward")
    assert code == 0
    (tried,) = [line for line in text.splitlines() if "another row's answer" in line]
    assert tried.split("answer")[1].strip().startswith("0 of ")
    mine = tmp_path / "mine.py"
    mine.write_text("def score(sample): return {'overall': 1.0, 'accuracy': 1.0}\n")
    code, text = plan("--runs-dir", str(tmp_path), "--try-reward", "--set", f"reward.function={mine}:score")
    assert code == 0 and "a wrong answer scores as high as a right one" in " ".join(text.split())
    mine.write_text("def score(sample): raise ValueError('the reason')\n")
    code, text = plan("--runs-dir", str(tmp_path), "--try-reward", "--set", f"reward.function={mine}:score")
    assert code == 1 and "ValueError: the reason" in " ".join(text.split())
    code, text = plan("--runs-dir", str(tmp_path), "--set", f"reward.function={mine}:score")
    assert code == 0 and "the reason" not in text, "a plan alone runs no code of the user"


def test_a_plan_for_a_gpu_of_unknown_memory_says_so_and_that_torch_cannot_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_driver(tmp_path, monkeypatch, "[N/A]")
    code, text = plan("--runs-dir", str(tmp_path))
    text = " ".join(text.split())
    assert code == 1 and "problem GPU: this machine has one" in text and "was built without CUDA" in text
    assert text.count("problem ") == 1 and "the driver does not report how much" in text, text
    assert "GiB of the GPU, whose size is not known, without a KV cache" in text
    assert "engine: compiled, with graphs (auto, on a GPU)" in text
    _, text = plan("--runs-dir", str(tmp_path), "--set", "rollout.enforce_eager=true")
    assert "engine: eager (as configured)" in " ".join(text.split())
    code, text = plan("--runs-dir", str(tmp_path), "--set", "cluster.device=cpu")
    assert code == 0 and "on a GPU" not in text, text


@pytest.fixture
def own_rows(tmp_path: Path) -> list[str]:
    """The overrides of text rows of one's own, in files."""
    for name, count in (("train", 70), ("held", 8)):
        rows = [{"problem": f"What is {row}?", "answer": row} for row in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [
        f"data.train={{type: local, path: {tmp_path}/train.jsonl}}",
        f"data.validation={{type: local, path: {tmp_path}/held.jsonl}}",
        "reward={function: math}",
        "cold_start=null",
    ]


def test_batches_are_shown_before_anything_was_prepared(own_rows: list[str], tmp_path: Path) -> None:
    code, text = plan(*own_rows, "--runs-dir", str(tmp_path / "runs"))
    assert code == 0, text
    assert "70 rows / 64 = 1 steps; 6 rows are left out" in text
    assert "as many as are there" in text
    code, text = plan(*own_rows, "data.train.limit=50", "--runs-dir", str(tmp_path / "runs"))
    assert code == 1 and "a step of 64 prompts is more than the 50 training rows" in " ".join(text.split())


def test_every_kind_of_problem_is_named_at_once(own_rows: list[str], tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("{{ question }}")
    wrong = [
        f"data.prompt_template={tmp_path}/own.jinja",
        "reward.by_source={trian: {function: cuont}}",
        "evaluation.accuracy_key=acc",
        "evaluation.categories=[level]",
        "data.source_weights={other: 1.0}",
        "trainer.val_freq=0",
    ]
    code, text = plan(*own_rows, *wrong, "--runs-dir", str(tmp_path / "runs"))
    assert code == 1
    for key in (
        "data.prompt_template", "reward.by_source.trian.function", "reward.by_source.trian: no row",
        "data.source_weights",
        "evaluation.accuracy_key", "evaluation.categories", "trainer.val_freq",
    ):  # fmt: skip
        assert f"problem {key}" in text, key


def told_of(*arguments: str) -> str:
    """What a plan prints on a wide terminal."""
    return CliRunner().invoke(app, ["plan", *arguments], env={"COLUMNS": "300"}).output


def test_a_plan_forecasts_each_placement_on_a_kind_of_gpu_that_is_elsewhere(tmp_path: Path) -> None:
    """And says which one is the fastest, for which lengths, and where the rates come from."""
    baseline = str(ROOT / "configs" / "baselines" / "qwen2_5_vl_7b_geo3k_grpo.yaml")
    options = ("--runs-dir", str(tmp_path), "--set", "cluster.devices=8")
    text = told_of(baseline, *options, "--gpu", "h100")
    rows = [line for line in text.splitlines() if line.startswith(("│ colocated", "│ split"))]
    assert rows and "of each of 8 workers of a machine" in text
    steps = {row: float(row.split("│")[6].replace(",", "")) for row in rows}
    assert [row for row in rows if "fastest" in row] == [min(steps, key=steps.__getitem__)]
    assert "assumed from the data sheet of NVIDIA H100 80GB HBM3" in text
    assert "a forecast for prompts of 450 and responses of 400 tokens (planning)" in " ".join(text.split())
    assert "with responses of 25, 50 and 100 % of the longest" in " ".join(text.split())
    assert "step time: not known: the kind of GPU is not known" in told_of(baseline, *options, "--gpu-gib", "80")


@pytest.mark.parametrize("size", ["tensor_parallel_size", "sequence_parallel_size"])
def test_workers_that_cannot_be_have_no_step_time(size: str, tmp_path: Path) -> None:
    """More workers together than there are."""
    text = told_of(
        "configs/quickstart.yaml", "--runs-dir", str(tmp_path), "--set", f"cluster.{size}=2", "--gpu", "h100"
    )
    assert "problem cluster" in text and "Memory in GiB" in text
    assert "Step time" not in text and "step time" not in text


def test_a_model_that_only_fits_with_shared_generators_is_planned_with_them(tmp_path: Path) -> None:
    """32B on two machines: refused without them, with no step time for a generator that has no cache."""
    baseline, options = str(ROOT / "configs" / "baselines" / f"{SEVEN_BILLION[0]}.yaml"), ("--runs-dir", str(tmp_path))
    model = ("--set", "model.source.path=Qwen/Qwen2.5-VL-32B-Instruct", "--gpu", "h100")
    cluster = "nodes: 2, devices: 8, address: auto"
    refused = told_of(baseline, *options, *model, "--set", f"cluster={{{cluster}}}")
    assert "problem memory of the GPU" in refused and "set cluster.tensor_parallel_size to 2 (then about" in refused
    assert "Step time" not in refused and "step time" not in refused
    planned = told_of(baseline, *options, *model, "--set", f"cluster={{{cluster}, tensor_parallel_size: 2}}")
    assert "memory of the GPU" not in planned and "Step time" in planned


SEVEN_BILLION = sorted(path.stem for path in (ROOT / "configs" / "baselines").glob("*_7b_*.yaml"))


@pytest.mark.parametrize("name", SEVEN_BILLION)
def test_published_baselines_come_to_the_published_steps_on_eight_workers(name: str) -> None:
    """Whole optimizer steps, dealt to 8 workers without a rest, and nothing that makes the result incomparable."""
    result = CliRunner().invoke(
        app, ["reproduce", name, "--dry-run", "--set", "cluster.devices=8"], env={"COLUMNS": "1000"}
    )
    assert result.exit_code == 0, result.output
    assert "each of 8 generators: up to 64 prompts = 320 responses" in result.output
    assert "each of 8 learners: up to 16 groups = 80 responses" in result.output
    assert "Memory in GiB, of each of 8 workers" in result.output
    assert not any(word in result.output for word in ("problem", "not comparable", " or "))


def test_a_number_of_threads_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "usable_cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    two, kept = ClusterConfig(devices=2), "cluster.threads would keep it on every machine"
    assert threads_words(two) == f"3 for each worker (its share of the cores here; {kept})"
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert threads_words(two) == f"4 for each worker (OMP_NUM_THREADS; {kept})"
    assert threads_words(ClusterConfig(threads=8)) == "8 for each worker (cluster.threads)"


def test_a_plan_counts_the_longest_conversation() -> None:
    """In its words, in the batches of the update and in the engine; and says that zoom needs the pictures' own size.
    A continuous schedule is said not to repeat."""
    tools = "tools={use: [zoom], max_turns: 3, max_result_length: 100, schedule: continuous}"
    shown, output = plan(tools, "data.max_prompt_length=64")
    assert shown == 0, output
    words = " ".join(output.split())
    assert "300 tokens = prompt 64 + 3 turns of 12" in words
    assert "2 results of 100" in words
    assert "data.max_source_pixels" in words
    assert "does not repeat to the bit" in words


def test_a_plan_counts_what_an_environment_shows_first() -> None:
    tools = "tools={environment: 'games.py:Walk', max_turns: 3, max_result_length: 100}"
    config = load_config(
        Path("configs/quickstart.yaml"),
        [tools, "data.max_prompt_length=64", "rollout.max_response_length=12", "rollout.n=5"],
    )
    assert config.tools is not None
    words = conversation_words(config, config.tools)
    assert words.startswith("400 tokens = prompt 64 + what an environment shows first 100 + 3 turns of 12")
    assert longest_sequence(config) == 400
    assert longest_tree(config) == 164 + 5 * 236
