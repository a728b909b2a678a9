"""The forecast of memory against what was measured: on a GPU by torch's allocator with the geometry of published models
(`python -m benchmarks.gpu_memory`), on a CPU in whole runs (`python -m benchmarks.memory`)."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu_memory_cases import BASE, CHOSEN, GPU_GIB, PHASES, case_of, cases, forecast
from rl_core.config.loading import load_config
from rl_core.planning.gpu import Gpu
from rl_core.planning.memory import CONTEXT, DRIVER, GRAPHS, memory_forecast
from rl_core.planning.settings import configured, resolve_auto
from tests.rl_core.planning.published import sizes_of

ROOT = Path(__file__).parents[3]
ROWS = json.loads((ROOT / "benchmarks" / "results" / "gpu_memory.json").read_text())["rows"]
RUNS = json.loads((ROOT / "benchmarks" / "results" / "memory.json").read_text())["whole_runs"]
WITHIN = 0.1


def test_every_case_was_measured():
    assert [case_of(row) for row in ROWS] == list(cases())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(map(str, list(row.values())[:6])))
def test_a_gpu_takes_what_is_forecast(row):
    """Every peak within a tenth, both ways; and what is pinned, where anything is offloaded."""
    expected, measured = forecast(case_of(row)), row["gib"]
    phases = [*PHASES, *(["pinned"] if row["offload"] != "none" else [])]
    wrong = {
        phase: (expected[phase], measured[phase])
        for phase in phases
        if abs(expected[phase] / measured[phase] - 1) > WITHIN
    }
    assert not wrong, "[phase] -> forecast, measured"


def test_the_settings_chosen_for_an_h100_fit_as_measured():
    """The chosen settings are those of a case, and above its peak there is room for all that torch does not count."""
    autos = ("model.gradient_checkpointing", "actor.micro_batch_size_per_device_for_update", "trainer.offload")
    config = load_config(BASE, [*CHOSEN.overrides, *(f"{key}=auto" for key in autos)])
    sizes = sizes_of(config)
    resolved = resolve_auto(config, sizes, Gpu(memory_gib=GPU_GIB)).config
    assert [configured(resolved, key) for key in autos] == [True, CHOSEN.sequences, CHOSEN.offload]
    (row,) = (row for row in ROWS if case_of(row) == CHOSEN)
    found = memory_forecast(resolved, sizes, gpu_gib=GPU_GIB)
    uncounted = sum(row.gib for row in found.rows_of("always") if row.name in (DRIVER, CONTEXT, GRAPHS))
    assert max(row["gib"][phase] for phase in PHASES) + uncounted < GPU_GIB


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["run"])
def test_a_run_on_a_cpu_takes_what_is_forecast(run):
    config = load_config(ROOT / "configs" / "quickstart.yaml", run["overrides"])
    sizes = sizes_of(config)
    expected = memory_forecast(resolve_auto(config, sizes, None).config, sizes).peak_gib
    assert expected == pytest.approx(max(run["measured"].values()), rel=WITHIN)
