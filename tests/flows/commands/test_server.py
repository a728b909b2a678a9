"""Groups of devices are distinguished, and none is given away twice."""

import pytest

from flows.commands.server import check_groups, environment_of


@pytest.mark.parametrize(
    "groups", [[], ["0"], ["0,1", "2,3"], ["10.0.0.1:6379", "10.0.0.2:6379"], ["0,1", "10.0.0.1:6379"]]
)
def test_groups_without_a_common_device_are_taken(groups: list[str]) -> None:
    check_groups(groups)


@pytest.mark.parametrize("group", ["", "a", "0-3", "0, 1", "0,", ":6379", "host", "ray://host:1"])
def test_a_text_that_names_no_devices_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match="is no group of devices"):
        check_groups(["7", group])


@pytest.mark.parametrize(
    ("groups", "shared"), [(["0,1", "1,2"], "GPU 1 "), (["0,0"], "GPU 0 "), (["host:1", "host:1"], "host:1 ")]
)
def test_a_device_in_two_groups_is_refused(groups: list[str], shared: str) -> None:
    with pytest.raises(ValueError, match=f"{shared}would be given to two trainings"):
        check_groups(groups)


def test_a_process_of_a_group_sees_this_group_alone() -> None:
    assert environment_of("2,3") == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert environment_of("10.0.0.1:6379") == {"RAY_ADDRESS": "10.0.0.1:6379"}
