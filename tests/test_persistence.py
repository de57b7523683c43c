"""The driver stays loaded for as long as a study runs."""

import os
from contextlib import suppress

from opcost.devices.machine import keep_driver_loaded


def held():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the folder itself, which was open to be listed
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return found


def test_the_device_files_of_all_gpus_are_held_open(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert keep_driver_loaded(tmp_path) == 2
    assert {str(tmp_path / "nvidia0"), str(tmp_path / "nvidia1")} <= held()
    assert str(tmp_path / "nvidiactl") not in held()


def test_a_machine_without_gpus_has_nothing_to_hold(tmp_path):
    assert keep_driver_loaded(tmp_path) == 0
