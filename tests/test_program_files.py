"""A program's descriptors are its own, whatever it does with those of opcost."""

import os
import resource
import subprocess
import sys

import pytest
from opcost import power
from opcost.errors import OpcostError
from opcost.power.descriptor import Descriptor

from tests.opcost_measure import GPU, measure

pytestmark = pytest.mark.usefixtures("card_of_sampler")


def run(script, **options):
    """Run a program, and return what it prints."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def test_a_command_has_the_descriptors_that_opcost_was_given_and_none_of_its_own(tmp_path):
    (tmp_path / "hello").write_text("hello\n")
    with open(tmp_path / "hello") as file:
        os.set_inheritable(file.fileno(), True)
        name = f"/dev/fd/{file.fileno()}"
        found = measure("--", "sh", "-c", f"cat {name}; ls /proc/self/fd", pass_fds=[file.fileno()])
        alone = subprocess.run(
            ["sh", "-c", "ls /proc/self/fd"],
            pass_fds=[file.fileno()],
            capture_output=True,
            text=True,
            check=True,
        )
    assert found.stdout == f"hello\n{alone.stdout}"


def test_a_descriptor_that_is_another_file_by_now_is_left_alone(tmp_path):
    number = os.open(tmp_path / "first", os.O_CREAT | os.O_WRONLY)
    descriptor = Descriptor(number)
    assert descriptor.is_open
    os.close(number)
    assert not descriptor.is_open
    second = os.open(tmp_path / "second", os.O_CREAT | os.O_WRONLY)
    os.dup2(second, number)
    assert not descriptor.is_open
    descriptor.close()
    os.close(number)  # it was still open


CLOSING = """
import os, time
from opcost import power

window = power.start("before")
time.sleep(0.3)
os.closerange(3, 256)
files = [open(f"file {number}", "w+b", 0) for number in range(12)]
window.stop()
print(window.devices["cuda:0"].reason)
with power.measure("after") as after:
    time.sleep(0.3)
print(after.devices["cuda:0"].energy is not None)
window._monitor.close()
print([os.fstat(file.fileno()).st_size for file in files] == [0] * 12)
"""


def test_a_program_may_close_all_descriptors_and_open_others_by_their_numbers(tmp_path):
    found = run(CLOSING, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    reason, measured, unharmed = found.stdout.splitlines()
    assert "the program has closed the pipes" in reason or "did not change" in reason
    assert (measured, unharmed) == ("True", "True")


MANY = """
import resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
files = [open("/dev/null") for _ in range(1100)]
from opcost import power
with power.measure("beside many files") as window:
    time.sleep(0.3)
print(window.devices["cuda:0"].energy is not None)
"""


def test_a_program_may_have_more_files_than_select_knows():
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
        pytest.skip("fewer files are allowed")
    assert run(MANY).stdout == "True\n"


TOO_MANY = """
import resource
from opcost import power
from opcost.errors import OpcostError
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = []
try:
    while True:
        files.append(open("/dev/null"))
except OSError:
    pass
for _ in range(8):
    try:
        power.start("without files").stop()
    except OpcostError as error:
        print(error)
    files.pop()
"""


def test_a_program_without_free_descriptors_is_told_so_and_has_no_folder_left(tmp_path):
    found = run(TOO_MANY, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert found.returncode == 0, found.stderr
    assert "Too many open files" in found.stdout
    assert list(tmp_path.glob("opcost-power-*")) == []


@pytest.mark.parametrize("python", ["", None, "/no/such/python"])
def test_without_a_python_to_read_with_there_is_no_monitor_and_no_folder(
    python, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(OpcostError, match="power cannot be read: "):
        power.Monitor([GPU])
    assert list(tmp_path.iterdir()) == []
