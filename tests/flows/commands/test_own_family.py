"""A model is trained through a family of a person's own, in every process that computes it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rl_core.rollout.engines import build_folder

FAMILY = """
import os
from pathlib import Path
from rl_core.families.family import Family
from rl_core.families.internvl import Tiles

class Mine(Tiles):
    def forward_inputs(self, *given):
        Path({marks!r}, str(os.getpid())).touch()
        return super().forward_inputs(*given)

    def image_tokens(self, *given):
        Path({marks!r}, "rows").touch()
        return super().image_tokens(*given)

FAMILY = Family(name="mine", model_type="internvl", vision=Mine())
"""


class Person:
    """A person with a model, and a family for it in a file of their own."""

    def __init__(self, home: Path) -> None:
        self.home, self.marks, self.runs = home, home / "marks", home / "runs"
        self.marks.mkdir()
        self.model = build_folder(home / "model", "internvl")
        (home / "my_tiles.py").write_text(FAMILY.format(marks=str(self.marks)))
        self.family = f"{home}/my_tiles.py:FAMILY"

    def types(self, *words: str) -> str:
        """What `sightline` prints, where it succeeds."""
        command = [str(Path(sys.executable).with_name("sightline")), *words]
        environment = os.environ | {"XDG_CACHE_HOME": str(self.home / "cache"), "COLUMNS": "200"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0 or words[0] == "plan", done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout + done.stderr

    def marked(self) -> set[str]:
        """Where the family was at work since the last call: the processes of forward passes, and `rows`."""
        found = {path.name for path in self.marks.iterdir()}
        for name in found:
            (self.marks / name).unlink()
        return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_is_at_work_in_certificate_run_workers_and_evaluation(tmp_path: Path) -> None:
    person = Person(tmp_path)
    config = (
        "configs/quickstart.yaml",
        f"model={{source: {{type: pretrained, path: {person.model}}}, family: '{person.family}', dtype: float32}}",
        "cold_start=null",
        "data.rollout_batch_size=16",
        "data.max_prompt_length=128",
        "trainer={max_steps: 2, val_freq: 2, save_freq: 1}",
        "evaluation={limit: 8}",
        "rollout.n=4",
    )
    asked = person.types("plan", *config)
    assert f"make it: sightline doctor --model {person.model} --family {person.family}" in asked
    person.types("doctor", "--model", str(person.model), "--family", person.family)
    assert len(person.marked()) > 2
    assert "certificate" not in person.types("plan", *config)
    for devices in (1, 2):  # in the process of the run, and in two workers of Ray
        person.types("run", *config, f"cluster.devices={devices}", "--runs-dir", str(person.runs / f"{devices}"))
        assert len(person.marked() - {"rows"}) == devices
    (run,) = (path.parent for path in (person.runs / "1").glob("*/config.yaml"))
    assert "checks on" in (run / "merged" / "README.md").read_text()
    (tmp_path / "my_tiles.py").rename(tmp_path / "elsewhere.py")  # the run has a copy
    asks = ("evaluate", "configs/quickstart.yaml", "--limit", "4", "--out", str(tmp_path / "answers"))
    person.types(*asks, "--model", str(run))
    assert person.marked() == {"rows"}
    shutil.copytree(run / "merged", tmp_path / "published")
    person.types(*asks, "--model", str(tmp_path / "published"), "--family", f"{tmp_path}/elsewhere.py:FAMILY")
    assert person.marked() == {"rows"}
