"""Prepares rows and cold-started weights that all sides start from: `python -m ... CONFIG WORK [KEY=VALUE ...]`."""

import sys
from pathlib import Path

from benchmarks.starting_point import make_starting_point
from rl_core.config.loading import load_config
from rl_core.run_directory import RunDirectory

if __name__ == "__main__":
    make_starting_point(load_config(Path(sys.argv[1]), sys.argv[3:]), RunDirectory(Path(sys.argv[2])))
