"""summary.json keeps the keys that scripts read."""

from dataclasses import replace
from pathlib import Path

import pytest

from rl_core.evaluation.statistics import PairedCounts, mcnemar, paired_difference_interval
from tasks.cache.manifests import read_manifest, write_manifest
from tasks.report import summarise_run
from tasks.results.run_facts import RunFacts
from tests.tasks.finished_run import finish_run


def test_the_comparison_of_base_and_trained_has_counts_difference_interval_and_p_value(tmp_path: Path) -> None:
    run = finish_run(tmp_path, base="++---", trained="+-++-")
    counts = PairedCounts(both=1, only_first=1, only_second=2, neither=1)
    assert summarise_run(RunFacts(run))["evaluation"]["comparison"] == {
        "both": 1,
        "only_base": 1,
        "only_trained": 2,
        "neither": 1,
        "difference": pytest.approx(0.2),
        "difference_ci95": list(paired_difference_interval(counts)),
        "p_value": mcnemar(1, 2),
    }


def test_the_stages_of_another_run_are_named_with_it(tmp_path: Path) -> None:
    run = finish_run(tmp_path)
    write_manifest(run, replace(read_manifest(run, "merge"), reused_from="other"))
    assert summarise_run(RunFacts(run))["reused"] == {"merge": "other"}
