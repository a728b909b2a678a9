"""The container files say what the repository holds, and nothing else may be reached or known from outside.

`make lint` checks their grammar (hadolint, the Compose specification's schema); tests/e2e/test_containers.py runs the
services' commands.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import huggingface_hub
import mlflow.environment_variables
import prefect.settings
import pyarrow
import pytest
import yaml

from flows.commands.server import DEVICES
from rl_core.environment import TELEMETRY_OFF
from rl_core.redaction import is_secret_name, redact_addresses
from rl_core.run_directory import RUNS_DIR
from rl_core.storage.place import S3_ENDPOINTS
from rl_core.tracking.mlflow_pages import PAGES_VARIABLE
from tasks.storage.run_storage import VARIABLE
from tests.test_packaging import PACKAGES, pins

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = re.sub(r"\\\n|^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
WORKING_DIRECTORY = Path("/app")
READ_BY_POSTGRES = {"POSTGRES_USER", "POSTGRES_PASSWORD", "PGPASSWORD"}


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, flags=re.MULTILINE)


def copied() -> list[str]:
    return [source for line in instructions("COPY") for source in shlex.split(line)[:-1]]


def words(service: str) -> Iterator[list[str]]:
    """The commands of a service, word by word."""
    command = SERVICES[service].get("command", [])
    if command[:2] == ["sh", "-c"]:
        yield from (shlex.split(part) for part in command[2].split("&&"))
    elif command:
        yield command


def environment() -> Iterator[tuple[str, str, str | None]]:
    """(service, variable, value) of every service."""
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            yield name, variable, value


@cache
def mlflow_server_variables() -> set[str]:
    """The variables of `mlflow server`, asked in another process: it imports Flask, with which no vLLM starts (vLLM
    looks at every global of its process, and Flask's raise outside of a request)."""
    script = "from mlflow.cli import server; print(*(option.envvar for option in server.params if option.envvar))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@cache
def libarrow() -> bytes:
    """The library that speaks with object stores."""
    (library,) = Path(pyarrow.__file__).parent.glob("libarrow.so*")
    return library.read_bytes()


def is_read(variable: str) -> bool:
    """Whether the programs that are started read the variable."""
    by_mlflow = mlflow_server_variables() | set(dir(mlflow.environment_variables))
    hub = Path(huggingface_hub.__file__).parent
    by_hub = "".join((hub / name).read_text() for name in ("constants.py", "utils/_auth.py"))
    return (
        variable in by_mlflow | READ_BY_POSTGRES | {"WANDB_API_KEY", VARIABLE, PAGES_VARIABLE, *S3_ENDPOINTS}
        or hasattr(prefect.settings, variable)
        or f'"{variable}"' in by_hub
        or (variable.startswith("AWS_") and variable.encode() in libarrow())
    )


def test_the_files_that_the_image_copies_exist_and_are_sent_to_the_build() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"
    assert set(copied()) == sent
    assert all((ROOT / source).exists() for source in copied())
    assert {*PACKAGES, "configs", "startup", "prefect.toml", "prefect.yaml", "constraints.txt"} <= sent


def test_the_image_installs_as_make_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (call,) = [line for line in instructions("RUN") if "make" in line and "apt-get" not in line]
    target, *settings = shlex.split(call[call.index("make ") :])[1:]
    assert f"\n{target}: " in makefile
    assert all(f"\n{setting.partition('=')[0]} ?=" in makefile for setting in settings)
    assert "pip install" not in DOCKERFILE


def test_base_images_fit_the_pins_and_name_no_registry() -> None:
    images = [image.split()[0] for image in instructions("FROM")]
    python, cuda, _ = images
    assert python.startswith("python:3.11-")
    assert cuda.startswith("nvidia/cuda:" + ".".join(pins()["cuda-toolkit"].partition("==")[2].split(".")[:2]))
    named = [*images, SERVICES["postgres"]["image"]]
    assert not any("." in image.split("/")[0] for image in named if "/" in image)
    assert not any(image.endswith(":latest") for image in named)


def test_nothing_in_the_image_reports_its_use_or_runs_as_root() -> None:
    variables = dict(re.findall(r"(\w+)=(\S+)", " ".join(instructions("ENV"))))
    assert TELEMETRY_OFF.items() <= variables.items()
    assert [int(user) > 0 for user in instructions("USER")] == [True]


def test_ports_are_reachable_from_this_machine_alone() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"prefect", "mlflow"}
    for name, (port,) in published.items():
        assert port.startswith("127.0.0.1:")
        (command,) = words(name)
        assert port.rpartition(":")[2] == command[command.index("--port") + 1]
    assert COMPOSE["networks"]["databases"] == {"internal": True}
    assert [name for name in SERVICES if "databases" in SERVICES[name]["networks"]] == ["postgres", "prefect", "mlflow"]


@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml", "Dockerfile", "containers/databases.sql"])
def test_no_address_in_the_files_holds_a_password(name: str) -> None:
    text = (ROOT / name).read_text()
    assert redact_addresses(text) == text


def test_secrets_come_from_the_environment_and_have_no_default() -> None:
    secrets = [(variable, value) for _, variable, value in environment() if is_secret_name(variable)]
    of_stores = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    names = {"POSTGRES_PASSWORD", "PGPASSWORD", "HF_TOKEN", "WANDB_API_KEY"} | of_stores
    assert names == {variable for variable, _ in secrets}
    for variable, value in secrets:
        assert value is None or re.fullmatch(r"\$\{\w+:\?[^}]+\}", value), variable
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


def test_every_variable_is_read_by_the_program_that_gets_it() -> None:
    assert [variable for _, variable, _ in environment() if not is_read(variable)] == []
    assert not is_read("PREFECT_API_ADDRESS")


def test_every_command_is_installed() -> None:
    scripts = Path(sys.executable).parent
    commands = [command for service in SERVICES for command in words(service)]
    assert len(commands) == 6
    assert all(shutil.which(command[0], path=str(scripts)) for command in commands)


def test_addresses_lead_to_services_and_their_ports() -> None:
    found = [
        (host, port)
        for _, _, value in environment()
        for host, port in re.findall(r"://(?:\w+@)?([a-z]+)(?::(\d+))?/?", value or "")
    ]
    assert {host for host, _ in found} == {"postgres", "prefect", "mlflow"}
    for host, port in found:
        (command,) = words(host) if host != "postgres" else (["", "--port", ""],)
        assert port == command[command.index("--port") + 1]


def test_volumes_lie_where_the_image_has_folders_of_its_user() -> None:
    made = [word for line in instructions("RUN") if "useradd" in line for word in shlex.split(line)]
    assert instructions("WORKDIR") == [str(WORKING_DIRECTORY)]
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source, target, *_ = volume.split(":")
            if source.startswith("."):
                assert (ROOT / source).is_file()
            else:
                assert source in COMPOSE["volumes"]
                relative = target.removeprefix(f"{WORKING_DIRECTORY}/")
                assert name == "postgres" or relative in made
    assert f"runs:{WORKING_DIRECTORY / RUNS_DIR}" in SERVICES["worker"]["volumes"]


def test_the_worker_serves_the_pool_that_deployments_ask_for() -> None:
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    pools = {tomllib.loads((ROOT / "prefect.toml").read_text())["deployments"]["default_work_pool_name"]}
    queues = {deployment["work_pool"].get("work_queue_name") for deployment in deployments} - {None}
    create, deploy, limit = words("deploy")
    (work,) = words("worker")
    assert {create[create.index("create") + 1], work[work.index("--pool") + 1]} == pools
    assert deploy[-2:] == ["deploy", "--all"]
    assert {limit[limit.index("set-concurrency-limit") + 1]} == queues == {DEVICES}
    assert {limit[limit.index("--pool") + 1]} == pools
