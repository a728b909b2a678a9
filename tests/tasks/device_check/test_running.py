"""A check whose process breaks off, by an error, a signal or a hang, is a row of the table, and hides no other."""

import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tasks.device_check import checks
from tasks.device_check.check import Check, Finding, Setting
from tasks.device_check.running import findings_of
from tests.processes import living
from tests.tasks.device_check import endings
from tests.tasks.finished_run import config_with


def check_of(function: str, **fields: Any) -> Check:
    values: dict[str, Any] = {"holds": ("first", "second", "third"), "advice": "set a key"} | fields
    return Check(function=f"tests.tasks.device_check.endings:{function}", **values)


def found(check: Check, folder: Path) -> list[Finding]:
    return [*findings_of(check, Setting(folder=folder, devices=3))]


def test_findings_come_as_they_were_made(tmp_path: Path) -> None:
    first, second = found(check_of("ends_well"), tmp_path)
    assert first == endings.FIRST
    assert second.measured == "3 devices"


@pytest.mark.parametrize(
    ("function", "why", "in_log"),
    [
        ("raises", "RuntimeError: CUDA error: an illegal memory access was encountered", "might be reported later"),
        ("dies", "ended with signal SIGSEGV", "in dies"),
    ],
)
def test_a_process_that_breaks_off_fails_where_it_was(function: str, why: str, in_log: str, tmp_path: Path) -> None:
    first, second, third = found(check_of(function), tmp_path)
    assert first == endings.FIRST
    assert (second.check, second.verdict, second.measured) == ("second", "fails", f"broke off: {why}")
    assert second.advice == "set a key"
    assert in_log in second.log  # the stack
    assert (third.check, third.verdict) == ("third", "not checked")


def test_a_process_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    first, second, _ = found(check_of("hangs_with_a_child", seconds=3.0), tmp_path)
    assert second.measured == "broke off: it did not end within 3 s, and was stopped"
    assert "in hangs_with_a_child" in second.log  # where it hangs
    assert "in waits_for_a_kernel" in second.log
    deadline = time.monotonic() + 30.0
    while living([int(first.figures["pid"])]):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_that_finds_nothing_fails(tmp_path: Path) -> None:
    assert [finding.verdict for finding in found(check_of("finds_nothing"), tmp_path)] == [
        "fails",
        "not checked",
        "not checked",
    ]


def all_findings(monkeypatch: pytest.MonkeyPatch, *made: Check, devices: int | None = None) -> list[Finding]:
    monkeypatch.setattr(checks, "SOFTWARE", check_of("ends_well"))
    shown: list[str] = []
    findings = [finding for _, finding in checks.device_findings(made, devices=devices, config=None, show=shown.append)]
    assert shown[0] == "ends_well"
    return findings


def test_after_a_check_that_broke_off_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = all_findings(monkeypatch, check_of("dies"), check_of("ends_well"))
    assert [finding.check for finding in findings] == ["first", "second", "first", "second", "third", "first", "second"]
    assert findings[-1].measured == "1 devices"


def test_a_check_that_needs_more_devices_is_not_made_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, alone = all_findings(monkeypatch, check_of("ends_well", holds=("pair",), devices=2))
    assert (alone.check, alone.verdict) == ("pair", "not checked")
    assert alone.measured == "it needs 2 devices, and there is 1"


@pytest.mark.parametrize(
    ("facts", "asked", "expected"),
    [
        ({"gpus": 0}, None, (1, 1)),
        ({"gpus": 0}, 2, (2, 2)),  # processes of a CPU
        ({"gpus": 8}, None, (8, 8)),
        ({"gpus": 8}, 2, (2, 8)),
        ({"gpus": 1}, 2, (2, 1)),
        ({}, 2, (2, 1)),  # torch did not start
    ],
)
def test_devices_are_gpus_or_processes(facts: dict[str, int], asked: int | None, expected: tuple[int, int]) -> None:
    assert checks._devices(asked, facts) == expected


def test_every_check_names_a_function() -> None:
    configured = checks.device_checks(config_with())
    names = [check.name for check in (checks.SOFTWARE, *configured)]
    assert len({*names}) == len(names)
    for check in (checks.SOFTWARE, *configured):
        module, name, *_ = check.function.split(":")
        assert callable(getattr(import_module(module), name))
