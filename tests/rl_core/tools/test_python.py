"""Programs of a model, in their real processes."""

import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.tools.builtin.python import confinement_problem, python_tool
from rl_core.tools.isolated_tools import IsolatedTools
from rl_core.tools.journal import Journal
from rl_core.tools.messages import ToolRequest, ToolResult
from rl_core.tools.tool import ToolSample
from rl_core.tools.toolbox import tool_schemas

pytestmark = pytest.mark.skipif(
    (problem := confinement_problem()) is not None, reason=problem or "this machine confines programs"
)

DATA = DataConfig.model_validate(
    {name: {"type": "counting", "size": 8, "scene_seed": 1} for name in ("train", "validation")}
)


def config_of(**settings: Any) -> ToolsConfig:
    limits = {"timeout_seconds": 30.0, "memory_limit_gib": 1.0, "max_result_length": 64}
    return ToolsConfig(use=("python",), **(limits | settings))


class Programs:
    def __init__(self, tools: IsolatedTools, events: list[dict[str, Any]]) -> None:
        self.tools, self.events, self.calls = tools, events, 0

    def __call__(self, code: str, *, seed: int = 1) -> ToolResult:
        self.calls += 1
        request = ToolRequest(sample=ToolSample(()), arguments={"code": code}, seed=seed, place=self.calls)
        return self.tools.call("python", request, version=0).result()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    home = tmp_path_factory.mktemp("programs")
    events: list[dict[str, Any]] = []
    journal = Journal(home / "calls", needed_from=lambda: 0)
    with IsolatedTools(
        config_of(workers=1),
        DATA,
        image_store=home / "images",
        journal=journal,
        log_event=lambda kind, **facts: events.append({"kind": kind} | facts),
    ) as tools:
        yield Programs(tools, events)


def test_shows_what_a_program_prints(programs: Programs) -> None:
    import_both = "import sys, numpy\nprint(numpy.arange(3).sum())\nprint('more', file=sys.stderr)"
    assert programs(import_both) == ToolResult(["3\nmore\n"], None, None)
    assert programs("x = 1") == ToolResult(["the program printed nothing"], None, None)
    assert programs("print('ä' * 3)\nraise SystemExit(0)") == ToolResult(["äää\n"], None, None)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print(1)\n1 / 0", "ZeroDivisionError: division by zero"),
        ("print(", "SyntaxError"),
        ("raise SystemExit(3)", "exit code 3"),
        ("import ctypes; ctypes.string_at(0)", "signal SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "signal SIGKILL"),
        ("x = bytearray(2 << 30)", "MemoryError"),
        ("while True: print('x' * 1000)", "printed more than 4096 characters"),
        ("print(input())", "EOFError"),
        ("x = '\0'", "zero byte"),
        ("x = '" + "x" * 120_000 + "'", "more than 100000 bytes"),
    ],
)
def test_a_program_that_does_not_end_well_is_the_models_mistake(programs: Programs, code: str, expected: str) -> None:
    result = programs(code)
    assert result.mistake is not None and expected in result.mistake, result
    assert not programs.events  # no failure of the tool
    assert programs("print(2)").shown == ["2\n"]


@pytest.mark.parametrize(
    "code",
    [
        "open({file!r}).read()",
        "open({file!r}, 'w').write('x')",
        "import os; os.listdir({folder!r})",
        "import os; os.unlink({file!r})",
        "import os; os.truncate({file!r}, 0)",
        "import os; os.rename({file!r}, {file!r} + '2')",
        "import os; os.symlink({file!r}, '/usr/link')",
        "open('/tmp/new', 'w')",
        "open('/proc/self/environ').read()",
        "open(f'/proc/{{__import__(\"os\").getppid()}}/environ').read()",
        "import os; os.kill(os.getppid(), 15)",
        "import os; os.fork()",
        "import subprocess; subprocess.run(['/bin/ls'])",
        "import socket; socket.create_connection(('127.0.0.1', {port}))",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
        "import socket; socket.create_server(('127.0.0.1', 0))",
        "import ctypes, os; assert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0",
    ],
)
def test_a_program_reaches_nothing_outside(programs: Programs, tmp_path: Path, code: str) -> None:
    file = tmp_path / "secret"
    file.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = programs(code.format(file=str(file), folder=str(tmp_path), port=server.getsockname()[1]))
    assert result.mistake is not None and "Error" in result.mistake, result
    assert file.read_text() == "secret"


def test_a_program_sees_none_of_the_runs_variables(programs: Programs) -> None:
    (shown,) = programs("import os; print(sorted(os.environ))").shown
    assert isinstance(shown, str) and "SIGHTLINE" not in shown and "PYTHONPATH" not in shown


def test_equal_calls_draw_equal_random_numbers() -> None:
    tool = python_tool(config_of())
    code = "import os, random\nprint(random.random(), os.urandom(4), hash('a'), object(), {object() for _ in range(3)})"
    shown = []
    for seed in (1, 1, 2):
        random.seed(seed)
        shown.append(tool(ToolSample(()), {"code": code}))
    assert shown[0] == shown[1] != shown[2]


@pytest.mark.parametrize("sandbox", ["landlock", "none"])
@pytest.mark.parametrize("code", ["while True: pass", "import os; os.close(1); os.close(2)\nwhile True: pass"])
def test_a_program_that_takes_too_long_is_ended(sandbox: str, code: str) -> None:
    tool = python_tool(config_of(sandbox=sandbox, timeout_seconds=0.5))
    with pytest.raises(ValueError, match=r"longer than 0\.5 seconds"):
        tool(ToolSample(()), {"code": code})


def test_an_unconfined_program_reads_what_the_run_may_read(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("read")
    tool = python_tool(config_of(sandbox="none"))
    assert tool(ToolSample(()), {"code": f"print(open({str(file)!r}).read())"}) == "read\n"
    with pytest.raises(ValueError, match="printed more than"):
        tool(ToolSample(()), {"code": "while True: print('x' * 99)"})


def test_the_model_is_told_of_the_tool() -> None:
    (schema,) = tool_schemas(config_of(), DATA)
    assert schema["function"]["name"] == "python"
    assert list(schema["function"]["parameters"]["properties"]) == ["code"]


@settings(max_examples=5)
@given(lines=st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20), max_size=5))
def test_what_is_printed_arrives(programs: Programs, lines: list[str]) -> None:
    printed = "".join(f"{line}\n" for line in lines)
    expected = printed or "the program printed nothing"
    assert programs(f"for line in {lines!r}: print(line)").shown == [expected]
