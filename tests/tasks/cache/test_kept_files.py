"""A run's folder is enough to know what its config named, wherever one stands and whatever became of the originals."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from rl_core.config.run import RunConfig
from rl_core.rewards.registry import resolve_rewards
from rl_core.run_directory import RunDirectory
from tasks.cache.kept_files import files_of_run, keep_files, read_kept
from tasks.cache.named_files import NamedFiles, located_config
from tasks.cache.stages import config_digest, epoch_chain, stage_digests
from tasks.planning.trials import find_problems
from tasks.tracking.run_tracking import run_tags
from tests.tasks.finished_run import config_with, finish_stage

NAMES = {
    "data.train": "{type: local, path: data/train.jsonl, media_dir: data/images}",
    "data.validation": "{type: mixture, sources: {a: {type: local, path: data/held_out.jsonl},"
    " own: {type: custom, function: 'sources/kept_sums.py:rows'}}}",
    "data.prompt_template": "prompts/ask.jinja",
    "data.override_chat_template": "prompts/chat.jinja",
    "cold_start": "{source: {type: local, path: data/train.jsonl}, steps: 1, batch_size: 1, target_template: 'A'}",
    "reward.function": "null",
    "reward.mixture": "[{function: rewards/score.py:score}, "
    "{function: length, weight: 0.1, kwargs: {target_length: 2, max_length: 9}}]",
    "reward.by_source": "{a: {function: other/score.py:score}}",
    "algorithm.loss": "{type: custom, function: algorithms/loss.py:mine, kwargs: {scale: 2.0}}",
    "algorithm.advantage": "{type: custom, function: rewards/score.py:estimate}",
    "algorithm.online_filtering": "{type: custom, function: algorithms/filter.py:keeps}",
    "tracking.mlflow_uri": "sqlite:///mlflow.db",
}
FILES = {
    "data/train.jsonl": '{"problem": "1 + 1?", "answer": "2"}\n',
    "data/held_out.jsonl": '{"problem": "1 + 2?", "answer": "3"}\n',
    "prompts/ask.jinja": "{{ content }} Reply briefly.",
    "prompts/chat.jinja": "{{ messages }}",
    "rewards/score.py": (
        "from grading.scale import RIGHT\ndef score(sample): return {'overall': RIGHT}\n"
        "def estimate(inputs): return inputs.token_rewards\n"
    ),
    "rewards/grading/__init__.py": "",
    "rewards/grading/scale.py": "RIGHT = 1.0\n",
    "sources/kept_sums.py": "from words.asked import ASKED\ndef rows(): yield {'problem': ASKED, 'answer': 1}\n",
    "sources/words/asked.py": "ASKED = '0 + 1?'\n",
    "algorithms/loss.py": (
        "from scales import SCALE\nfrom rl_core.algorithms.losses import PPOLoss\n"
        "def mine(tokens, *, scale): return PPOLoss().loss(tokens)\n"
    ),
    "algorithms/scales.py": "SCALE = 1.0\n",
    "algorithms/filter.py": "def keeps(scores): return True\n",
    "other/score.py": "def score(sample): return {'overall': 0.5}\n",
}


@dataclass(frozen=True)
class Begun:
    """A run that was begun in a project's folder."""

    project: Path
    config: RunConfig
    run: RunDirectory

    def digests(self, **options: bool) -> dict[str, str]:
        """As the run has them from where one stands."""
        files = files_of_run(self.config, self.run, **options)
        chain = epoch_chain(self.config, stage_digests(self.config, files), epochs=2, files=files)
        return stage_digests(self.config, files) | dict(chain)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begun:
    project = tmp_path / "project"
    write(project, FILES)
    (project / "data" / "images").mkdir()
    monkeypatch.chdir(project)
    config = config_with(*(f"{key}={value}" for key, value in NAMES.items()))
    run = RunDirectory(tmp_path / "runs" / "away")
    run.root.mkdir(parents=True)
    keep_files(run, config, NamedFiles())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return Begun(project, config, run)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def stand(begun: Begun, *stages: str) -> None:
    """Let the stages stand, as the run was begun."""
    digests = begun.digests()
    for stage in stages:
        finish_stage(begun.run, stage, {}, digest=digests[stage])


def test_stages_are_known_from_elsewhere_and_when_the_originals_are_gone(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as there:
        there.chdir(begun.project)
        expected = stage_digests(begun.config)
        tags = run_tags(begun.config, RunDirectory(begun.project / "nowhere"))
    assert begun.digests().items() >= expected.items(), "from elsewhere"
    stand(begun, "prepare")
    shutil.rmtree(begun.project)
    assert begun.digests().items() >= expected.items(), "without the originals"
    assert run_tags(begun.config, begun.run)["protocol"] == tags["protocol"]


def test_files_of_the_same_names_elsewhere_are_others(begun: Begun) -> None:
    expected = begun.digests()
    write(Path.cwd(), {name: text + "# another\n" for name, text in FILES.items() if not name.startswith("data/")})
    assert begun.digests() == expected
    stand(begun, "prepare")
    assert begun.digests(is_frozen=True) == expected


def test_a_prepared_run_reads_the_copy_of_its_family(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(begun.project)
    write(begun.project, {"families/mine.py": "from parts import FAMILY\n", "families/parts.py": "FAMILY = 1\n"})
    config = config_with(*(f"{key}={value}" for key, value in NAMES.items()), "model.family=families/mine.py:FAMILY")
    keep_files(begun.run, config, NamedFiles())
    own = Begun(begun.project, config, begun.run)
    stand(own, "prepare")
    shutil.rmtree(begun.project / "families")
    family = located_config(config, files_of_run(config, begun.run)).model.family
    copy = Path(family.removesuffix(":FAMILY"))
    assert copy.is_relative_to(begun.run.inputs) and copy.read_text() == "from parts import FAMILY\n"
    assert copy.with_name("parts.py").read_text() == "FAMILY = 1\n"


def test_everything_can_be_read_where_the_located_config_says(begun: Begun) -> None:
    stand(begun, "prepare")
    for state in ("original", "copy"):
        located = located_config(begun.config, files_of_run(begun.config, begun.run))
        assert Path(located.data.prompt_template).read_text() == FILES["prompts/ask.jinja"]
        assert Path(located.data.override_chat_template).read_text() == FILES["prompts/chat.jinja"]
        own = located.data.validation.parts["own"]
        code = Path(own.function.removesuffix(":rows"))
        assert code.is_relative_to(begun.run.inputs) and code.read_text() == FILES["sources/kept_sums.py"]
        assert (code.parent / "words" / "asked.py").is_file(), "its neighbours are there too"
        routing = resolve_rewards(located.reward)
        assert [spec.function for spec in routing.specs] == ["score", "compute_score", "score"]
        for spec, name in ((routing.specs[0], "rewards"), (routing.specs[2], "other")):
            assert spec.source.read_text() == FILES[f"{name}/score.py"]
        assert (routing.specs[0].source.parent / "grading" / "scale.py").is_file(), "its neighbours are there too"
        loss, advantage = located.algorithm.loss, located.algorithm.advantage
        assert Path(loss.file).read_text() == FILES["algorithms/loss.py"]
        assert Path(loss.file).with_name("scales.py").read_text() == FILES["algorithms/scales.py"]
        assert (loss.label, loss.kwargs) == ("mine", {"scale": 2.0})
        assert Path(advantage.file).read_text() == FILES["rewards/score.py"]
        assert Path(located.algorithm.online_filtering.file).read_text() == FILES["algorithms/filter.py"]
        assert [term.label for term in located.reward.terms] == [term.label for term in begun.config.reward.terms]
        assert state == "copy" or Path(located.data.train.path).read_text() == FILES["data/train.jsonl"]
        if begun.project.exists():
            assert own.media_dir == str(begun.project / "sources"), "and images are where they were"
            assert located.data.train.media_dir == str(begun.project / "data" / "images")
            assert located.tracking.mlflow_uri == f"sqlite:///{begun.project}/mlflow.db"
            shutil.rmtree(begun.project)


def test_a_config_is_shown_named_and_hashed_as_it_was_written(begun: Begun) -> None:
    located = located_config(begun.config, NamedFiles())
    assert located == begun.config
    elsewhere = located_config(begun.config, files_of_run(begun.config, begun.run))
    assert elsewhere != begun.config
    assert config_digest(elsewhere) != config_digest(begun.config), "so it must never be hashed"


def test_a_reward_can_be_mended_until_the_run_is_frozen(begun: Begun) -> None:
    stand(begun, "prepare")
    before = begun.digests()
    (begun.project / "rewards" / "grading" / "scale.py").write_text("RIGHT = 2.0\n")
    mended = begun.digests()
    changed = {stage for stage in before if before[stage] != mended[stage]}
    assert changed >= {"training", "train-epoch-001", "evaluate-base"} and "prepare" not in changed
    assert begun.digests(is_frozen=True) == before
    finish_stage(begun.run, "report", {}, digest=before["report"])
    assert begun.digests() == before, "a finished run stays finished"


def test_prepared_rows_keep_their_digest_when_the_files_change(begun: Begun) -> None:
    before = begun.digests()
    (begun.project / "prompts" / "ask.jinja").write_text("{{ content }}")
    (begun.project / "data" / "train.jsonl").write_text('{"problem": "1 + 1?", "answer": "3"}\n')
    assert begun.digests()["prepare"] != before["prepare"], "nothing was prepared yet"
    finish_stage(begun.run, "prepare", {}, digest=before["prepare"])
    assert begun.digests() == before
    finish_stage(begun.run, "prepare", {}, digest="of an earlier version")
    assert begun.digests()["prepare"] != before["prepare"]


def test_a_correction_takes_the_place_of_what_was_kept_and_nothing_else_is_written(begun: Begun) -> None:
    stand(begun, "prepare")
    record = begun.run.inputs / "inputs.json"
    written = record.stat().st_ino
    keep_files(begun.run, begun.config, files_of_run(begun.config, begun.run))
    assert record.stat().st_ino == written
    (begun.project / "other" / "score.py").write_text("def score(sample): return {'overall': 0.25}\n")
    keep_files(begun.run, begun.config, files_of_run(begun.config, begun.run))
    mended = begun.digests()
    shutil.rmtree(begun.project)
    assert begun.digests() == mended
    assert read_kept(begun.run).directory == str(begun.project)


@pytest.mark.usefixtures("own_imports")
def test_a_run_whose_data_are_gone_goes_on_with_what_was_prepared(begun: Begun) -> None:
    stand(begun, "prepare")
    shutil.rmtree(begun.project)
    located = located_config(begun.config, files_of_run(begun.config, begun.run))
    assert not [problem for problem in find_problems(located, begun.run, is_prepared=True) if problem.fatal]
    assert {"data.train.path", "data.validation.sources.a.path"} <= {
        problem.where for problem in find_problems(located, begun.run)
    }


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"copies": {"a": "../a"}}'])
def test_a_damaged_record_is_none(begun: Begun, text: str) -> None:
    record = begun.run.inputs / "inputs.json"
    known = json.loads(record.read_text())
    record.write_text(json.dumps(known | json.loads(text)) if text.startswith('{"') else text)
    assert read_kept(begun.run) is None


def test_a_run_that_keeps_nothing_is_read_as_it_is_written(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = begun.digests()
    shutil.rmtree(begun.run.inputs)
    with pytest.raises(ValueError, match="cannot be read"):
        begun.digests()
    monkeypatch.chdir(begun.project)
    assert begun.digests() == expected
