"""A server of Prefect that is not there is reported in a sentence, whichever command asks it."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, PREFECT_HOME, temporary_settings

from flows.process.embedded_server import PrefectAway, reached_prefect, starting_alone
from tests.servers import started, wait_until

NOBODY = "http://weekly:geheim@127.0.0.1:1/api"


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
        yield


def refusal(address: str) -> str:
    with temporary_settings({PREFECT_API_URL: address}), pytest.raises(PrefectAway) as away, reached_prefect():
        pytest.fail("it was reached")
    return str(away.value)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (NOBODY, "ConnectError"),
        ("http://127.0.0.1:port/api", "InvalidURL: Invalid port: 'port'"),
        ("127.0.0.1:4200/api", "UnsupportedProtocol"),
    ],
)
def test_an_address_where_nobody_answers_is_named_with_what_to_do(address: str, why: str) -> None:
    message = refusal(address)
    assert f"Prefect's server at {address.replace('geheim', '***')} does not answer ({why}" in message
    assert "correct PREFECT_API_URL" in message and "geheim" not in message and "\n" not in message


def test_an_error_after_the_server_was_reached_keeps_its_type(prefect_server: None) -> None:
    with pytest.raises(KeyError), reached_prefect():
        raise KeyError("of the block")


@pytest.mark.slow
@pytest.mark.parametrize("answers", [False, True])
def test_an_embedded_server_ends_with_a_process_that_is_killed_even_before_it_answers(
    tmp_path: Path, answers: bool
) -> None:
    code = (
        "import time\nfrom flows.process.embedded_server import reached_prefect\n"
        "with reached_prefect(): print('reached', flush=True); time.sleep(600)"
    )
    variables = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    variables |= {"PREFECT_HOME": str(tmp_path / "prefect")}
    output = tmp_path / "output.txt"
    with started([sys.executable, "-c", code], variables, output) as process:
        ours = psutil.Process(process.pid)

        def servers() -> list[psutil.Process]:
            return [child for child in ours.children() if "uvicorn" in child.cmdline()]

        wait_until(servers, "the server is started", seconds=120)
        if answers:
            wait_until(lambda: "reached" in output.read_text(), "it answers", seconds=120)
        else:
            time.sleep(0.5)  # much less than it needs to answer, and enough to start what looks after it
        (server,) = servers()
        process.kill()
        process.wait()
        assert psutil.wait_procs([server], timeout=60)[1] == []


def test_an_embedded_server_that_does_not_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(**_: object) -> None:
        raise RuntimeError("Timed out while attempting to connect to ephemeral Prefect API server.")

    monkeypatch.setattr("flows.process.embedded_server.get_client", slow)
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(PrefectAway, match=r"does not start \(.*Timed out.*\): start one"),
        reached_prefect(),
    ):
        pytest.fail("it was reached")


def test_a_server_starts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that made the tables of a new database at the same time would both fail; a second start waits."""
    monkeypatch.setattr("flows.process.embedded_server._SECONDS_FOR_A_START", 0.2)
    with (
        temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults={PREFECT_API_URL}),
        starting_alone(),
        pytest.raises(PrefectAway, match=r"another command has been starting .* for 0\.2 s"),
        reached_prefect(),
    ):
        pytest.fail("it was reached")
    with temporary_settings({PREFECT_HOME: tmp_path}), starting_alone():
        pass
