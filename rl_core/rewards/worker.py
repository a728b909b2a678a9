"""What runs in a scoring process: the only place where a reward function is called."""

import ctypes
import pickle
import random
import resource
import signal
import sys
import time
import zlib

from rl_core.rewards.components import components_of
from rl_core.rewards.loading import Scorer, load_scorer
from rl_core.rewards.messages import Outcome
from rl_core.rewards.sample import RewardSample
from rl_core.rewards.spec import RewardSpec

SLICE_SECONDS = 0.1
"""A process gives back the rest of its chunk after this long: then another one may take it, and the time limit of a
chunk stays that of one call plus this."""

LOAD_SECONDS = 120
"""A reward file whose import takes longer kills its process."""

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

_process: "_Process"


class _Process:
    """What this process loaded: a scorer, or the reason why there is none."""

    def __init__(self, spec: RewardSpec, memory_limit_bytes: int) -> None:
        self.memory_limit_bytes = memory_limit_bytes
        self.scorer: Scorer | None = None
        self.load_error = ""
        try:
            self.scorer = load_scorer(spec)
        except Exception as error:  # noqa: BLE001 - a stranger's file may raise anything; each sample tells
            self.load_error = f"could not load {spec.name}: {self.describe(error)}"

    def describe(self, error: Exception) -> str:
        if isinstance(error, MemoryError):
            return f"MemoryError: more than reward.memory_limit_gib = {self.memory_limit_bytes / 2**30:g}"
        return f"{type(error).__name__}: {error}"


def start_process(spec: RewardSpec, memory_limit_bytes: int) -> None:
    """Set the limits of this process and load the reward; runs once, when the process starts."""
    global _process
    _die_with_the_server()
    # pebble asks with SIGTERM before it kills. Python would answer between two bytecodes, which a regular expression
    # that runs away never reaches; the kernel answers at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit_bytes, memory_limit_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(LOAD_SECONDS)
    _process = _Process(spec, memory_limit_bytes)
    signal.alarm(0)


def _die_with_the_server() -> None:
    """A process that waits for a chunk sees the server's end by itself; one that hangs in a call does not."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def score_chunk(samples: bytes, start: int, stop: int) -> tuple[list[Outcome], float]:
    """Score the samples start .. stop-1 of a pickled list, in order, until they end or the slice of time is over.

    Returns:
        One outcome a sample that was scored (at least one), and the seconds they took together.
    """
    began = time.perf_counter()
    outcomes = []
    for sample in pickle.loads(samples)[start:stop]:
        outcomes.append(_score(sample))
        if time.perf_counter() - began > SLICE_SECONDS:
            break
    return outcomes, time.perf_counter() - began


def _score(sample: RewardSample) -> Outcome:
    if _process.scorer is None:
        return Outcome({}, None, _process.load_error)
    _seed_library_generators(sample)
    try:
        components = components_of(_process.scorer.score(sample))
        parsed = _process.scorer.parse(sample.response) if _process.scorer.parse else None
    except Exception as error:  # noqa: BLE001 - a stranger's function may raise anything; it costs this sample
        return Outcome({}, None, _process.describe(error))
    return Outcome(components, parsed, None)


def _seed_library_generators(sample: RewardSample) -> None:
    """A function that draws from a global generator scores a sample alike in every process and order of arrival."""
    seed = zlib.crc32(f"{sample.prompt}\x1f{sample.response}".encode(errors="surrogatepass"))
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
