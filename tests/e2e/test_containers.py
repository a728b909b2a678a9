"""The services of compose.yaml without a container engine: their own commands and variables, on a real PostgreSQL.

Only what a container network gives is replaced: the hosts' names by the loopback address, the ports by free ones.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import yaml
from mlflow import MlflowClient

from rl_core.config.stages import TrackingConfig
from tests.e2e.processes import prefect
from tests.e2e.runs import REPOSITORY
from tests.processes import answers, listening
from tests.servers import free_port, started, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

SERVICES = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]
PASSWORD = "p@ss/word:of%our own"  # every character that an address would need escaped
BINARIES = Path(sys.executable).parent


class Place:
    """A folder with everything that the services write, and the addresses that stand for their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {"postgres": free_port(), "prefect": free_port(), "mlflow": free_port()}
        self.inside = {"postgres": "5432", "prefect": "4200", "mlflow": "5000"}

    def here(self, text: str) -> str:
        """A word of compose.yaml as it reads without a network of containers."""
        for name, port in self.ports.items():
            text = re.sub(rf"(://(?:\w+@)?){name}(:\d+)?", rf"\g<1>127.0.0.1:{port}", text)
            text = re.sub(rf"127\.0\.0\.1:{self.inside[name]}\b", f"127.0.0.1:{port}", text)
        return text.replace("0.0.0.0", "127.0.0.1").replace("/artifacts", str(self.folder / "artifacts"))

    def command(self, service: str) -> list[str]:
        port = self.inside.get(service)
        return [str(self.ports[service]) if word == port else self.here(word) for word in SERVICES[service]["command"]]

    def variables(self, service: str) -> dict[str, str]:
        given = {name: value for name, value in SERVICES[service]["environment"].items() if value is not None}
        own = {"PREFECT_HOME": str(self.folder / service), "PATH": f"{BINARIES}:{os.environ['PATH']}"}
        return os.environ | own | {name: self.here(filled(value)) for name, value in given.items()}

    def is_healthy(self, service: str) -> bool:
        _, *check = SERVICES[service]["healthcheck"]["test"]
        words = [sys.executable if word == "python" else self.here(word) for word in check]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0


def filled(text: str) -> str:
    """The text with the password for what must be set, and the default for what may be."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", re.sub(r"\$\{\w+:\?[^}]*\}", lambda _: PASSWORD, text))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """PostgreSQL, Prefect's server and MLflow's, up and healthy."""
    if shutil.which("initdb") is None:
        pytest.skip("needs PostgreSQL's initdb and postgres")
    place = Place(tmp_path_factory.mktemp("services"))
    with ExitStack() as stack:
        stack.enter_context(postgres(place))
        for service in ("prefect", "mlflow"):
            log = place.folder / f"{service}.txt"
            stack.enter_context(started(place.command(service), place.variables(service), log))
        for service in ("prefect", "mlflow"):
            wait_until(lambda name=service: place.is_healthy(name), f"{service} is healthy")
        yield place


@contextmanager
def postgres(place: Place) -> Iterator[None]:
    """A server that asks for the password, with the databases of containers/databases.sql; it refuses to be root's."""
    data, user = place.folder / "postgres", SERVICES["postgres"]["environment"]["POSTGRES_USER"]
    as_postgres = {"user": "postgres"} if os.geteuid() == 0 else {}
    data.mkdir()
    for folder in (data, *data.parents[:3]):
        folder.chmod(0o755)
    if as_postgres:
        shutil.chown(data, "postgres")
    secret = place.folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    make = ["initdb", "--pgdata", str(data), "--username", user, "--auth", "scram-sha-256", "--pwfile", str(secret)]
    subprocess.run(make, check=True, capture_output=True, cwd=data, **as_postgres)
    port = place.ports["postgres"]
    serve = ["postgres", "-D", str(data), "-p", str(port), "-c", "listen_addresses=127.0.0.1", "-k", str(data)]
    reach = ["--host=127.0.0.1", f"--port={port}", f"--username={user}"]
    ready = ["pg_isready", *reach]
    script = REPOSITORY / "containers" / "databases.sql"
    fill = ["psql", *reach, "--dbname=postgres", "--set=ON_ERROR_STOP=1", f"--file={script}"]
    process = subprocess.Popen(serve, cwd=data, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **as_postgres)
    try:
        wait_until(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0, "PostgreSQL is up")
        subprocess.run(fill, check=True, capture_output=True, env=os.environ | {"PGPASSWORD": PASSWORD})
        yield
    finally:
        process.send_signal(signal.SIGINT)  # its "fast" shutdown: connections are closed
        process.wait()


def test_both_servers_write_to_postgres_and_listen_at_the_given_address(place: Place) -> None:
    assert not list(place.folder.rglob("*.db")), "a server fell back to SQLite"
    assert listening(psutil.Process()) == {"127.0.0.1"}


def test_no_server_shows_the_password_to_other_users(place: Place) -> None:
    commands = [" ".join(command) for command in answers(psutil.Process(), psutil.Process.cmdline)]
    assert any("mlflow" in command for command in commands)
    assert not any(PASSWORD in command for command in commands)


def test_the_deployments_are_made_and_made_again(place: Place) -> None:
    command = ["sh", "-c", filled(SERVICES["deploy"]["command"][2])]
    for _ in range(2):
        done = subprocess.run(
            command, env=place.variables("deploy"), cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    variables = place.variables("deploy")
    assert "baseline/quickstart" in prefect("deployment", "ls", variables=variables)
    queue = prefect("work-queue", "inspect", "devices", "--pool", "local", variables=variables)
    assert "concurrency_limit=1" in re.sub(r"\s", "", queue)


def test_a_worker_finds_its_pool_and_mlflow(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    log = place.folder / "worker.txt"
    with started(place.command("worker"), place.variables("worker"), log):
        wait_until(lambda: "started!" in log.read_text(), "the worker polls its pool")
    variables = place.variables("worker")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", variables["MLFLOW_TRACKING_URI"])
    client = MlflowClient(tracking_uri=TrackingConfig().mlflow_address)
    run = client.create_run(client.create_experiment("by a worker"))
    client.log_text(run.info.run_id, "a report", "report.txt")
    assert (place.folder / "artifacts").is_dir()
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["report.txt"]


@pytest.mark.parametrize(
    ("host", "status"),
    [("mlflow:5000", 200), ("localhost:5001", 200), ("127.0.0.1:5000", 200), ("stranger.example", 403)],
)
def test_mlflow_answers_to_its_own_names_only(place: Place, host: str, status: int) -> None:
    address = f"http://127.0.0.1:{place.ports['mlflow']}/api/2.0/mlflow/experiments/get?experiment_id=0"
    assert httpx.get(address, headers={"Host": host}).status_code == status
