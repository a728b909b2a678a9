"""Secrets are found by their values, wherever they got into a text, and nothing else is touched."""

import io
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.redaction import redact, redact_addresses, redact_logs, redact_tree

SECRET = "hf_0123456789"


@pytest.fixture(autouse=True)
def environment(monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "disabled")
    monkeypatch.setenv("MONKEY", "a banana")
    monkeypatch.setenv("SHORT_TOKEN", "train")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://weekly:wort-und-satz@mlflow:5000")


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "PGPASSWORD",
        "MLFLOW_TRACKING_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "PREFECT_API_AUTH_STRING",
        "judge_apikey",
    ],
)
def test_a_variable_is_secret_by_its_name(name, monkeypatch):
    monkeypatch.setenv(name, "something-secret")
    assert redact("sent something-secret, refused") == f"sent [{name}], refused"


@pytest.mark.parametrize("text", ["disabled", "a banana", "train", "runs/train.yaml", ""])
def test_other_variables_and_short_values_are_left_standing(text):
    assert redact(text) == text


def test_a_secret_that_is_part_of_another_one_leaves_nothing_of_it(monkeypatch):
    monkeypatch.setenv("OTHER_TOKEN", f"{SECRET}-and-more")
    assert redact(f"{SECRET}-and-more, {SECRET}") == "[OTHER_TOKEN], [HF_TOKEN]"


def test_the_password_in_a_variables_address_is_secret_everywhere():
    assert redact("password=wort-und-satz is wrong") == "password=[MLFLOW_TRACKING_URI] is wrong"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("http://user:pass%20word@host:5000/api", "http://user:***@host:5000/api"),
        ("postgresql+psycopg2://user:p@db/mlflow and more", "postgresql+psycopg2://user:***@db/mlflow and more"),
        ("redis://:secret@host", "redis://:***@host"),
        ("https://host/a?x=1&api_key=abc&y=2", "https://host/a?x=1&api_key=***&y=2"),
        ("postgresql://host/db?user=a&password=b", "postgresql://host/db?user=a&password=***"),
    ],
)
def test_passwords_in_addresses_are_hidden(text, left):
    assert redact_addresses(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////runs/mlflow.db",
        "http://host:5000/user@example.org",
        "git@host:owner/repository",
        "at 12:30 write to a@b",
        "https://user@host/path?page=2",
    ],
)
def test_addresses_without_a_password_stay(text):
    assert redact_addresses(text) == text


@given(st.text(), st.text())
def test_a_secret_never_survives_whatever_stands_around_it(before, after):
    assert SECRET not in redact(f"{before}{SECRET}{after}")


def test_a_tree_is_searched_to_its_leaves():
    tree = {"a": [SECRET, 1, None], "b": {"c": (f"x{SECRET}", 0.5)}}
    assert redact_tree(tree) == {"a": ["[HF_TOKEN]", 1, None], "b": {"c": ["x[HF_TOKEN]", 0.5]}}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What a handler writes that was there before anyone thought of secrets."""
    before, stream = logging.getLogRecordFactory(), io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    redact_logs()
    yield stream
    logging.getLogger().removeHandler(handler)
    logging.setLogRecordFactory(before)


def test_no_log_record_holds_a_secret_in_message_arguments_or_traceback(log):
    logger = logging.getLogger("some.library")
    logger.warning("token %s sent to %s", SECRET, "http://u:pw@host")
    try:
        raise ValueError(f"401 for {SECRET}")
    except ValueError:
        logger.exception("it failed")
    logged = log.getvalue()
    assert "token [HF_TOKEN] sent to http://u:***@host" in logged
    assert "ValueError: 401 for [HF_TOKEN]" in logged and "Traceback" in logged
    assert SECRET not in logged and ":pw@" not in logged


def test_a_record_whose_arguments_do_not_fit_is_left_to_its_handler(log, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logging.getLogger("some.library").warning("%d", "three")
    logging.getLogger("some.library").warning("and on")
    assert "and on" in log.getvalue()
