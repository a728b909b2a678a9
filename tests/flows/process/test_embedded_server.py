"""A server of Prefect that is not there is said in a sentence, whichever command asks it."""

from collections.abc import Iterator

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.process.embedded_server import PrefectAway, reached_prefect

NOBODY = "http://weekly:geheim@127.0.0.1:1/api"


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
        yield


def told(address: str) -> str:
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
    said = told(address)
    assert f"Prefect's server at {address.replace('geheim', '***')} does not answer ({why}" in said
    assert "correct PREFECT_API_URL" in said and "geheim" not in said and "\n" not in said


def test_what_goes_wrong_after_the_server_was_reached_keeps_its_kind(prefect_server: None) -> None:
    with pytest.raises(KeyError), reached_prefect():
        raise KeyError("of the block")


def test_an_embedded_server_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(**_: object) -> None:
        raise RuntimeError("Timed out while attempting to connect to ephemeral Prefect API server.")

    monkeypatch.setattr("flows.process.embedded_server.get_client", slow)
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(PrefectAway, match=r"does not start \(.*Timed out.*\): start one"),
        reached_prefect(),
    ):
        pytest.fail("it was reached")
