"""Whether a trained model can be merged and served."""

from collections.abc import Iterator
from typing import Final

from rl_core.config.tolerances import merge_tolerance
from rl_core.export.verification import MergeNotVerified, verify_merged
from rl_core.loop.session import open_session
from rl_core.progress import SilentProgress
from rl_core.stop import StopRequest
from tasks.device_check.check import Finding, Setting, compared
from tasks.device_check.trial import prepare_trial
from tasks.model_check.checks import MERGED

_ONE_WAY: Final = "vLLM was not asked, whose own attention for a CPU is one way within images"


def merge_findings(setting: Setting) -> Iterator[Finding]:
    """Whether transformers and vLLM load the model after a step, and give the log-probs of its checkpoint."""
    trial = prepare_trial(setting, "float32", trainer={"max_steps": 1})
    folder = setting.folder / "merged"
    folder.mkdir()
    with open_session(trial.config, trial.run, progress=SilentProgress(), stop=StopRequest()) as session:
        session.train_epoch(1)
        checkpoint = session.export_trained(folder)
    try:
        proof = verify_merged(folder, checkpoint.folder / "probe", merge_tolerance(trial.config))
    except MergeNotVerified as error:
        measured, holds = str(error).splitlines()[0], False
    else:
        gaps = ", ".join(f"{engine} {gap:.1e}" for engine, gap in proof.largest_difference.items())
        unasked = "" if "vllm" in proof.largest_difference else f"; {_ONE_WAY}"
        measured, holds = f"{proof.num_tokens} log-probs differ by at most: {gaps}{unasked}", True
    yield compared(MERGED, holds=holds, measured=measured, advice="the merged model cannot be served; send the output")
