"""Every deployment of prefect.yaml leads to a flow, with parameters that this flow takes and a config that loads."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import Flow
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema

from flows.baseline import baseline
from flows.commands.server import DEVICES, POOL
from flows.reproducing import DEFAULT_SET, BaselineSet, baseline_path
from rl_core.config.loading import load_config

pytestmark = pytest.mark.usefixtures("at_the_root")

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]

each = pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment["name"])


def flow_of(deployment: dict[str, Any]) -> Flow:
    file, _, _ = deployment["entrypoint"].partition(":")
    assert (ROOT / file).is_file()
    return load_flow_from_entrypoint(deployment["entrypoint"])


def test_schedules_have_names_and_wait_until_somebody_starts_them() -> None:
    schedules = {
        f"{one['name']}/{schedule['slug']}": schedule for one in DEPLOYMENTS for schedule in one.get("schedules", [])
    }
    training = {"quickstart/nightly", "reproduce-baselines/weekly", "reproduce-baselines/quarterly"}
    assert schedules.keys() == training | {"clean/weekly"}
    assert all(schedule["active"] is False for schedule in schedules.values())
    assert all(schedules[name]["parameters"]["fresh"] for name in training)


def test_a_cleaning_removes_nothing_but_by_its_schedule() -> None:
    (one,) = [one for one in DEPLOYMENTS if one["name"] == "clean"]
    assert "remove" not in one["parameters"]
    assert all(schedule["parameters"] == one["parameters"] | {"remove": True} for schedule in one["schedules"])


def test_the_weekly_set_has_the_baselines_with_a_deployment_of_their_own() -> None:
    """And every name that a schedule gives leads to one."""
    (one,) = [one for one in DEPLOYMENTS if one["name"] == "reproduce-baselines"]
    configs = [
        deployment["parameters"]["config"]
        for deployment in DEPLOYMENTS
        if "gpu" in deployment["tags"] and deployment != one
    ]
    assert [str(baseline_path(name)) for name in one["parameters"]["baselines"]] == configs
    assert tuple(one["parameters"]["baselines"]) == DEFAULT_SET
    for schedule in one["schedules"]:
        assert BaselineSet(baselines=schedule["parameters"]["baselines"]).planned()


@each
def test_its_flow_takes_its_parameters_and_those_of_its_schedules(deployment: dict[str, Any]) -> None:
    flow = flow_of(deployment)
    parameters = deployment.get("parameters", {})
    flow.validate_parameters(parameters)
    assert "config" not in parameters or load_config(Path(parameters["config"])).experiment
    for schedule in deployment.get("schedules", []):
        flow.validate_parameters(schedule["parameters"])


@each
def test_its_form_explains_every_field(deployment: dict[str, Any]) -> None:
    assert deployment["description"] and deployment["tags"]
    fields = flow_of(deployment).parameters.model_dump_for_openapi()["properties"]
    assert len(fields) <= 7
    assert all(field.get("description") for field in fields.values())


def test_their_forms_offer_the_configs_that_are_there_and_take_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs" / "shared").mkdir(parents=True)
    (tmp_path / "configs" / "shared" / "part.yaml").write_text("seed: 1\n")
    for name in ("mine.yaml", "configs/theirs.yaml"):
        (tmp_path / name).write_text("extends: shared/part.yaml\nexperiment: one\n")
    (tmp_path / "folder.yaml").mkdir()
    monkeypatch.chdir(tmp_path)
    field = parameter_schema(baseline.fn).model_dump_for_openapi()["properties"]["config"]
    text, offered = field["anyOf"]
    assert offered["enum"] == ["configs/theirs.yaml", "mine.yaml"]
    assert text["type"] == "string" and "type" not in offered, "the form finds a text in the field and not in the list"
    monkeypatch.chdir(tmp_path / "configs" / "shared")
    assert parameter_schema(baseline.fn).model_dump_for_openapi()["properties"]["config"]["type"] == "string"


@each
def test_every_config_of_a_deployment_is_among_those_offered(deployment: dict[str, Any]) -> None:
    field = flow_of(deployment).parameters.model_dump_for_openapi()["properties"].get("config")
    if field is not None:
        assert deployment["parameters"]["config"] in field["anyOf"][1]["enum"]


def test_deployments_go_to_the_pool_of_the_server_unless_the_environment_names_another() -> None:
    settings = tomllib.loads((ROOT / "prefect.toml").read_text())
    assert settings["deployments"]["default_work_pool_name"] == POOL


@each
def test_deployments_that_need_devices_wait_in_the_queue_of_devices(deployment: dict[str, Any]) -> None:
    pool = deployment["work_pool"]
    assert "name" not in pool, "the default of prefect.toml, so that another pool can be named in the environment"
    assert pool["job_variables"]["env"]["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert (pool.get("work_queue_name") == DEVICES) == (deployment["name"] not in ("compare", "clean"))
