"""Links lead to the pages that are served, whatever their port, and open them on runs and curves."""

import pytest

from rl_core.tracking.mlflow_pages import PAGES_VARIABLE, note_pages, page_of_experiment, page_of_run
from rl_core.tracking.mlflow_runs import MlflowPipeline

STORE = "sqlite:////data/mlflow.db"


@pytest.fixture(autouse=True)
def own_notes(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(PAGES_VARIABLE, raising=False)


def test_the_pages_of_a_database_are_where_they_were_served_last():
    assert page_of_run(STORE, "7", "abc") == (
        "http://127.0.0.1:5000/#/experiments/7/runs/abc?workflowType=machine_learning"
    )
    for port in (5001, 5002):
        note_pages(STORE, f"http://127.0.0.1:{port}")
        note_pages("postgresql://me:geheim@db/mlflow", "http://127.0.0.1:6000")
        assert page_of_experiment(STORE, "7") == (
            f"http://127.0.0.1:{port}/#/experiments/7/runs?workflowType=machine_learning&viewStateShareKey=sightline"
        )
    assert page_of_run("postgresql://me:other@db/mlflow", "7", "abc").startswith("http://127.0.0.1:6000/")
    assert page_of_run("sqlite:////other/mlflow.db", "7", "abc").startswith("http://127.0.0.1:5000/")


def test_a_servers_own_address_has_no_password_and_one_that_was_asked_for_wins(monkeypatch):
    server = "https://me:geheim@mlflow:5000/team/"
    assert page_of_experiment(server, "7").startswith("https://mlflow:5000/team/#/experiments/7/runs?")
    monkeypatch.setenv(PAGES_VARIABLE, "http://127.0.0.1:5003/")
    for store in (server, STORE):
        assert page_of_experiment(store, "7").startswith("http://127.0.0.1:5003/#/experiments/7/runs?")


def test_a_home_folder_that_cannot_be_written_costs_a_link(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    note_pages(STORE, "http://127.0.0.1:5001")
    assert page_of_experiment(STORE, "7").startswith("http://127.0.0.1:5000/")


def test_a_run_links_to_itself_and_to_its_experiment(new_database):
    store = new_database()
    note_pages(store, "http://127.0.0.1:5001")
    parent = MlflowPipeline(store, experiment="quickstart", run_name="quickstart-abc").parent
    assert parent.address == page_of_run(store, "1", parent.run_id)
    assert parent.experiment_address == page_of_experiment(store, "1")
