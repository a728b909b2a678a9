"""The cold start imitates responses that end, and stops when it learns nothing."""

import json
import shutil
import signal

import pytest

from rl_core.config.training import ColdStartConfig, OptimConfig
from rl_core.data.loader import PromptLoader
from rl_core.data.prepared import PreparedDataset
from rl_core.loop.cold_start import TargetRenderer, run_cold_start
from rl_core.models.loading import stop_token_ids
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.stop import Interrupted, StopRequest
from rl_core.training.optimizer import NonFiniteGradients
from rl_core.workers.local_worker import LocalWorker

COLD_START = ColdStartConfig(
    target_template="<answer>{{ answer }}</answer>", steps=4, batch_size=4, optim=OptimConfig(lr=1e-3)
)


def start(worker: LocalWorker, run: RunDirectory, *, stop: StopRequest | None = None) -> dict[str, float]:
    loader = PromptLoader(PreparedDataset.open(run.data, "train"), batch_size=4, seed=1, shuffle=True)
    targets = TargetRenderer(COLD_START.target_template, model_folder=run.initial_model)
    return run_cold_start(
        COLD_START,
        loader=loader,
        targets=targets,
        workers=worker,
        max_nonfinite_steps=3,
        progress=SilentProgress(),
        stop=stop or StopRequest(),
    )


@pytest.fixture
def cold_worker(worker, config, monkeypatch) -> LocalWorker:
    monkeypatch.setattr(worker.trainer, "config", config.model_copy(update={"cold_start": COLD_START}))
    return worker


def test_a_cold_start_reports_its_last_step(cold_worker, prepared_run):
    metrics = start(cold_worker, prepared_run)
    assert metrics["cold_start/nonfinite_streak"] == 0.0
    assert metrics["cold_start/final_loss"] > 0.0


def test_a_stop_ends_it_after_the_step(cold_worker, prepared_run, monkeypatch):
    stop, taken = StopRequest(), []
    imitate = cold_worker.imitate

    def imitated(examples):
        taken.append(imitate(examples))
        stop.signum = signal.SIGTERM
        return taken[-1]

    monkeypatch.setattr(cold_worker, "imitate", imitated)
    with pytest.raises(Interrupted):
        start(cold_worker, prepared_run, stop=stop)
    assert len(taken) == 1


def test_gradients_that_are_never_finite_end_it(cold_worker, prepared_run):
    def spoil(gradient):
        return gradient * float("nan")

    for parameter in cold_worker.trainer.policy.parameters():
        parameter.register_hook(spoil)
    with pytest.raises(NonFiniteGradients, match=r"cold start: 3 steps in a row .*lower cold_start\.optim\.lr"):
        start(cold_worker, prepared_run)


def test_a_target_ends_with_a_token_that_stops_the_generator(prepared_run, tmp_path):
    folder = shutil.copytree(prepared_run.initial_model, tmp_path / "model")
    prompt = PreparedDataset.open(prepared_run.data, "train")[0]

    def end():
        return int(TargetRenderer("{{ answer }}", model_folder=folder).example(prompt).target_ids[-1])

    (stop,) = stop_token_ids(folder)
    assert end() == stop
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    for eos in ("<|image_pad|>", None):  # which cannot be sampled, or is not named
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": eos}))
        assert end() == stop
