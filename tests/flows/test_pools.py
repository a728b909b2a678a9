"""The job templates of containers/pools carry the deployments: checked against Prefect's own ones and by its server."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from docker.types import HostConfig
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import PrefectHTTPStatusError
from prefect.utilities.schema_tools.validation import is_valid_schema, validate
from prefect.utilities.templating import apply_values

from tests.test_containers import COMPOSE, instructions

ROOT = Path(__file__).parents[2]
TYPES = ("docker", "kubernetes")
TEMPLATES: dict[str, dict[str, Any]] = {
    name: json.loads((ROOT / "containers" / "pools" / f"{name}.json").read_text()) for name in TYPES
}
DEPLOYMENTS = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
NOT_OFFERED = {"privileged"}
"""Of Prefect's own variables: a job of ours needs no rights over its machine."""

each = pytest.mark.parametrize("name", TYPES)


def of_prefect(name: str) -> dict[str, Any]:
    """The template that Prefect's server itself knows for this type of pool."""
    known = json.loads(
        files("prefect.server.api").joinpath("collections_data/views/aggregate-worker-metadata.json").read_text()
    )
    return known[f"prefect-{name}"][name]["default_base_job_configuration"]


def variables(name: str) -> dict[str, Any]:
    return TEMPLATES[name]["variables"]["properties"]


def defaults(name: str) -> dict[str, Any]:
    return {key: schema["default"] for key, schema in variables(name).items() if "default" in schema}


def job(name: str, **values: Any) -> dict[str, Any]:
    """The job that a worker would make."""
    return apply_values(TEMPLATES[name]["job_configuration"], defaults(name) | values)


@each
def test_it_takes_every_variable_of_prefects_own_template_as_the_same_type(name: str) -> None:
    theirs = of_prefect(name)["variables"]["properties"]
    assert theirs.keys() - NOT_OFFERED <= variables(name).keys()
    for key in theirs.keys() - NOT_OFFERED:
        ours = variables(name)[key]
        assert {part: ours.get(part) for part in ("type", "enum", "allOf")} == {
            part: theirs[key].get(part) for part in ("type", "enum", "allOf")
        }, key
        assert ours["description"]


@each
def test_it_sets_what_prefects_own_template_sets(name: str) -> None:
    """And `container_create_kwargs`, which workers of prefect-docker 0.6 and later pass on."""
    ours, theirs = TEMPLATES[name]["job_configuration"], of_prefect(name)["job_configuration"]
    assert ours.keys() - theirs.keys() == ({"container_create_kwargs"} if name == "docker" else set())
    assert theirs.keys() <= ours.keys()
    lost = [path for path, value in leaves(theirs) if value != dict(leaves(ours)).get(path, value)]
    assert lost == (["privileged"] if name == "docker" else [])
    missing = [path for path, _ in leaves(theirs) if path not in dict(leaves(ours))]
    assert missing == []


def leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(tree, dict):
        return [leaf for key, value in tree.items() for leaf in leaves(value, f"{path}.{key}".lstrip("."))]
    if isinstance(tree, list):
        return [leaf for place, value in enumerate(tree) for leaf in leaves(value, f"{path}.{place}")]
    return [(path, tree)]


@each
def test_every_variable_has_its_place_and_every_place_its_variable(name: str) -> None:
    text = json.dumps(TEMPLATES[name]["job_configuration"])
    assert set(re.findall(r"\{\{ (\w+) \}\}", text)) == variables(name).keys()


@each
def test_its_schema_and_its_defaults_are_valid(name: str) -> None:
    schema = TEMPLATES[name]["variables"]
    is_valid_schema(schema)
    validate(defaults(name), schema, raise_on_error=True)


@each
def test_jobs_hold_what_the_image_and_the_deployments_need(name: str) -> None:
    """Runs and downloads are mounted where compose.yaml mounts them, and the user is the image's."""
    made = job(name, command="prefect flow-run execute", env={"A": "1"})
    targets = {volume.split(":")[1] for volume in COMPOSE["services"]["worker"]["volumes"]}
    if name == "docker":
        assert {volume.split(":")[1] for volume in made["volumes"]} == targets
        created = made["container_create_kwargs"]
        assert (created["cap_drop"], created["init"], made["privileged"]) == (["ALL"], True, False)
        return
    pod = made["job_manifest"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts.keys() == targets | {"/dev/shm"}
    assert set(mounts.values()) == {volume["name"] for volume in pod["volumes"]}
    assert [f"{pod['securityContext']['runAsUser']}"] == instructions("USER")
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert pod["terminationGracePeriodSeconds"] == 600 and COMPOSE["services"]["worker"]["stop_grace_period"] == "10m"


def test_docker_understands_what_is_passed_on() -> None:
    """Also the request of a GPU that the description of the variable gives."""
    (example,) = re.findall(r"\[\{.*\}\]", variables("docker")["device_requests"]["description"])
    asked = json.loads(example)
    validate(defaults("docker") | {"device_requests": asked}, TEMPLATES["docker"]["variables"], raise_on_error=True)
    host = HostConfig(version="1.45", **job("docker", device_requests=asked)["container_create_kwargs"])
    (request,) = host["DeviceRequests"]
    assert asked == [{key: request[key] for key in ("Driver", "Count", "Capabilities")}]
    assert (host["CapDrop"], host["Init"], host["ShmSize"]) == (["ALL"], True, 8 << 30)


@flow
def nothing() -> None:
    """Does nothing."""


@each
@pytest.mark.usefixtures("prefect_server")
def test_prefects_server_takes_the_pool_and_every_deployment_in_it(name: str) -> None:
    pool = f"{name}-pool"
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=pool, type=name, base_job_template=TEMPLATES[name]))
        flow_id = client.create_flow(nothing)

        def deploy(deployment: str, job_variables: dict[str, Any]) -> None:
            client.create_deployment(flow_id=flow_id, name=deployment, work_pool_name=pool, job_variables=job_variables)

        for deployment in DEPLOYMENTS:
            deploy(deployment["name"], deployment["work_pool"]["job_variables"])
        with pytest.raises(PrefectHTTPStatusError, match=r"422|409"):
            deploy("wrong", {"env": {"A": "1"}, "image_pull_policy": "Sometimes"})
