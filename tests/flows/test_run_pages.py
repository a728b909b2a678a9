"""Pages that are written again while a run trains, on Prefect's own server."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from rl_core.config.run import RunConfig
from rl_core.evaluation.items import write_items
from rl_core.evaluation.result import read_evaluation
from rl_core.run_directory import RunDirectory
from tasks.run_pages import show_stage, steps_shown
from tests.tasks.finished_run import config_with, finish_run, finish_stage


@dataclass
class Training:
    """The part of a run's context that its pages look at."""

    config: RunConfig
    run: RunDirectory


def validation_pages(experiment: str) -> list[str]:
    """Every version of the page that the server has."""
    wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[f"{experiment}-validation"]))
    with get_client(sync_client=True) as client:
        return [str(artifact.data) for artifact in client.read_artifacts(artifact_filter=wanted)]


@pytest.mark.usefixtures("prefect_server")
def test_a_validation_is_on_its_page_as_soon_as_it_is_written(tmp_path: Path) -> None:
    run = finish_run(tmp_path, trained="+---")
    seen: list[list[str]] = []

    @flow(name="training")
    def training() -> None:
        with steps_shown(Training(config_with("experiment=pages"), run)) as pages:
            pages()
            seen.append(validation_pages("pages"))
            for step, evaluated in ((0, "base"), (2, "trained")):
                write_items(run.validation(step), read_evaluation(run.evaluation(evaluated))["greedy"])
                pages()
                pages()
                seen.append(validation_pages("pages"))

    training()
    before, first, second = seen
    assert before == []
    assert len(first) == len(second) == len(validation_pages("pages")) == 1, "one page, written again"
    assert "validated after step 0" in first[0] and "| right |" not in first[0]
    assert "validated after step 2" in second[0] and "| right |" in second[0]


@pytest.mark.usefixtures("prefect_server")
def test_validations_that_are_dropped_to_be_made_again_leave_the_pages_as_they_are(tmp_path: Path) -> None:
    run = finish_run(tmp_path)
    write_items(run.validation(0), read_evaluation(run.evaluation("base"))["greedy"])

    @flow(name="training")
    def training() -> None:
        with steps_shown(Training(config_with("experiment=dropped"), run)) as pages:
            run.validation(0).unlink()
            pages()

    training()
    assert validation_pages("dropped") == []


@pytest.mark.usefixtures("prefect_server")
def test_an_epoch_whose_rollouts_are_lost_is_shown_as_far_as_it_can_be(tmp_path: Path) -> None:
    run = finish_run(tmp_path)
    run.validation(0).parent.mkdir()
    run.validation(0).write_bytes(b"damaged")
    manifest = finish_stage(run, "train-epoch-001", {"last_step": 2})

    @flow(name="shown")
    def shown() -> None:
        show_stage(Training(config_with("experiment=lost"), run), manifest)

    shown()
    assert "This page cannot be shown" in validation_pages("lost")[0]
