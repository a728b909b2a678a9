"""The GPU is found by asking the driver: no library is loaded for it."""

import pytest

from rl_core.planning.gpu import Gpu, driver_version, find_gpu, free_gpu_memory, visible_gpus
from tests.rl_core.planning.gpu_driver import put_driver


@pytest.mark.parametrize(
    ("answer", "code", "gpu"),
    [
        ("143771, NVIDIA H200\n143771, NVIDIA H200", 0, Gpu(memory_gib=143771 / 1024, name="NVIDIA H200")),
        ("81559, NVIDIA H100, Disabled", 0, Gpu(memory_gib=81559 / 1024, name="NVIDIA H100")),
        ("81559, NVIDIA H100, Enabled", 0, Gpu(memory_gib=None, name="NVIDIA H100")),
        ("[N/A], NVIDIA GB10", 0, Gpu(memory_gib=None, name="NVIDIA GB10")),
        ("[Insufficient Permissions]\n81559", 0, Gpu(memory_gib=None)),
        ("No devices were found", 0, None),
        ("", 0, None),
    ],
)
def test_the_driver_is_asked_for_the_gpu(tmp_path, monkeypatch, answer, code, gpu):
    put_driver(tmp_path, monkeypatch, answer, code)
    assert find_gpu() == gpu


def test_a_hidden_gpu_is_none(tmp_path, monkeypatch):
    put_driver(tmp_path, monkeypatch, "143771")
    for nothing in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", nothing)
        assert find_gpu() is None


@pytest.mark.parametrize(
    ("answer", "code", "free"),
    [("80896\n[N/A]\n512", 0, [79.0, 0.5]), ("No devices were found", 0, []), ("80896", 9, [])],
)
def test_the_free_memory_of_every_gpu_is_listed_as_far_as_it_is_known(tmp_path, monkeypatch, answer, code, free):
    put_driver(tmp_path, monkeypatch, answer, code)
    assert free_gpu_memory() == free


@pytest.mark.parametrize(
    ("answer", "named", "visible"),
    [
        ("[N/A]\nDisabled\nDisabled", None, ("0", "1", "2")),
        ("Disabled\nDisabled\nDisabled", "2,0", ("2", "0")),
        ("Disabled\nDisabled", "GPU-8f3a, GPU-77c1", ("GPU-8f3a", "GPU-77c1")),
        ("Disabled\nDisabled", "1,2,0", ("1",)),  # there is no third one, and CUDA looks no further
        ("Disabled\nDisabled", "1,1", ("1",)),
        ("Disabled", "", ()),
        ("Enabled\nEnabled", None, ("0",)),
        ("Enabled\nEnabled", "1", ("1",)),
        ("Enabled", "MIG-1a,MIG-2b", ("MIG-1a", "MIG-2b")),
        ("No devices were found", None, ()),
        ("", "0", ()),
    ],
)
def test_every_gpu_that_may_be_used_has_the_name_that_cuda_knows(tmp_path, monkeypatch, answer, named, visible):
    put_driver(tmp_path, monkeypatch, answer)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_gpus() == visible


@pytest.mark.parametrize(
    ("version", "code", "found"), [("580.95.05", 0, "580.95.05"), ("580", 9, None), ("''", 0, None)]
)
def test_the_driver_is_asked_for_its_version(tmp_path, monkeypatch, version, code, found):
    put_driver(tmp_path, monkeypatch, "81559, NVIDIA H100", code, version=version)
    assert driver_version() == found
