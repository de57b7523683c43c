"""What can be foreseen of a system is answered with a message: no traceback, and no row is lost."""

import errno
import io
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opcost import memory
from opcost.databases.database import read_database
from opcost.databases.merging import merge
from opcost.devices import machine
from opcost.devices.processor import CpuDevice
from opcost.errors import OpcostError, reported
from opcost.files import read_json, replacing
from opcost.imports.importer import import_records
from opcost.models.user_code import message
from opcost.plain_yaml import read_yaml
from opcost.power import read_windows
from opcost.published import read_published
from opcost.rows import records, schemas
from opcost.terminal import announce, show_any_text
from opcost.tuples.manifest import read_record
from opcost.tuples.model_tuples import read_model_tuples
from opcost.workers.isolation import run_isolated


def answer_to(error, capsys):
    """What a command or a job says when this is raised, with the exit code 1."""
    with pytest.raises(SystemExit) as stop, reported():
        raise error
    assert stop.value.code == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "results/a.parquet"),
            "opcost: results/a.parquet: No space left on device: free some space and run the "
            "same command again; all measurements are kept\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "opcost: standard output, or a file: No space left on device: free some space and run "
            "the same command again; all measurements are kept\n",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "results"),
            "opcost: results: Permission denied: change its permissions, or use another folder\n",
        ),
        (
            BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
            "opcost: the system: Resource temporarily unavailable: raise the limit (ulimit -a), "
            "or end other programs\n",
        ),
        (
            OSError(errno.ENOLCK, "No locks available", "/tmp/opcost-cpu.lock"),
            "opcost: /tmp/opcost-cpu.lock: No locks available: use a folder on a file system that "
            "has locks, such as a local disk\n",
        ),
        (
            MemoryError(),
            "opcost: there is not enough memory: close other programs, raise the limit "
            "(ulimit -v), or use a machine or a job with more memory\n",
        ),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), ""),
    ],
    ids=[
        *("full disk", "full output", "no permission", "no process left", "no locks", "memory"),
        "broken pipe",
    ],
)
def test_what_the_system_refuses_is_a_message(error, answer, capsys):
    assert answer_to(error, capsys) == answer


def test_text_in_another_encoding_is_a_message(capsys):
    with pytest.raises(UnicodeDecodeError) as caught:
        b"\xff".decode()
    assert "can't decode byte 0xff" in answer_to(caught.value, capsys)


@pytest.mark.parametrize(
    "error", [KeyError("tiny"), OSError(errno.EBADF, "Bad file descriptor")], ids=repr
)
def test_a_fault_of_opcost_keeps_its_traceback_and_asks_to_be_reported(error, capfd):
    def work():
        with reported():
            raise error

    with pytest.raises(SystemExit):
        run_isolated(work, timeout_s=10)
    said = capfd.readouterr().err
    assert "Traceback" in said
    assert said.endswith("this is a bug in opcost: please report it with the lines above\n")


@pytest.mark.parametrize("raised_by", ["the writer", "fsync"])
def test_a_full_disk_leaves_what_was_there_and_names_the_file(tmp_path, monkeypatch, raised_by):
    full = OSError(errno.ENOSPC, "No space left on device")

    def refuse(*_):
        raise full

    path = tmp_path / "row.parquet"
    path.write_text("earlier")
    if raised_by == "fsync":
        monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write(path, refuse if raised_by == "the writer" else lambda: None)
    assert caught.value.filename == str(path)
    assert [each.name for each in tmp_path.iterdir()] == ["row.parquet"]
    assert path.read_text() == "earlier"


def write(path, then):
    with replacing(path) as temporary:
        temporary.write_text("later")
        then()


def test_a_device_or_a_pipe_is_not_replaced_by_a_file_nor_is_a_link(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "named")
    for output in (pipe, Path("/dev/null")):
        with pytest.raises(OpcostError, match="is a pipe or a device"), replacing(output):
            pass
    with replacing(link) as temporary:
        temporary.write_text("found")
    assert link.is_symlink()
    assert (tmp_path / "named").read_text() == "found"
    assert pipe.is_fifo()
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("name", [".", "folder/..", "new/..", "/"])
def test_a_folder_is_not_replaced_by_a_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write(Path(name), lambda: None)


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    stored = []
    monkeypatch.setattr(os, "fsync", lambda _: stored.append(sorted(os.listdir(tmp_path))))
    write(tmp_path / "row.parquet", lambda: None)
    assert stored == [[f".row.parquet.{os.getpid()}.tmp"]]


def test_an_error_text_with_half_a_surrogate_pair_can_be_stored(tmp_path):
    row = {"status": "error", "error": "RuntimeError: \udcff"}
    records.write(tmp_path / "row.parquet", schemas.OPERATOR, [row])
    [found] = records.read(tmp_path / "row.parquet", schemas.OPERATOR, ["error"]).to_pylist()
    assert found["error"] == r"RuntimeError: \udcff"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_not_waited_for(tmp_path, make):
    make(tmp_path / "row.parquet")
    with pytest.raises(OpcostError, match=r"row.parquet is a \w+.*, not a file: move it away"):
        records.read(tmp_path / "row.parquet", schemas.OPERATOR)
    assert records.metadata(tmp_path / "row.parquet") == {}


@pytest.mark.parametrize(
    "read",
    [
        read_database,
        read_yaml,
        read_model_tuples,
        read_published,
        read_windows,
        lambda path: read_record(path, "0" * 16),
        lambda path: merge([path], path.with_name("merged.parquet")),
        lambda path: import_records([path], path.with_name("imported.parquet"), "https://x.org"),
    ],
)
@pytest.mark.parametrize("place", ["pipe", "/dev/zero"])
def test_no_reader_waits_for_a_pipe_or_reads_a_device(tmp_path, read, place):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OpcostError, match="is a pipe or a device, not a file"):
        read(tmp_path / place)


def test_a_file_that_is_too_large_for_one_reading_is_refused_by_its_size(tmp_path):
    with (tmp_path / "device.json").open("wb") as file:
        file.truncate(30 * 2**30)
    with pytest.raises(OpcostError, match=r"device.json has 32,212,254,720 bytes; allowed"):
        read_json(tmp_path / "device.json", "delete it")


def test_more_rows_than_memory_holds_are_refused_by_their_number(tmp_path):
    table = pa.table({"tuple_id": pa.nulls(10**7, pa.string())})
    pq.write_table(table.replace_schema_metadata(schemas.DATABASE.metadata), tmp_path / "d.parquet")
    with pytest.raises(OpcostError, match="has 10,000,000 rows, which would take about 1,118 GiB"):
        read_database(tmp_path / "d.parquet", row_bytes=120_000)


def test_an_ascii_terminal_reads_ascii(monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
    show_any_text()
    announce("12 µs ± 1.0%  Größe  \udcff")
    assert shown.getvalue() == b"12 us +- 1.0%  Gr\\xf6\\xdfe  \\udcff\n"


class Full(io.StringIO):
    """Standard output that is a file on a full disk."""

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_an_announcement_that_nobody_can_read_fails_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Full())
    announce("[operator] local")
    sys.stdout.flush()


def test_a_child_ends_also_when_its_last_words_cannot_be_written(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Full())
    assert run_isolated(lambda: print("done"), timeout_s=10) is None


def linux_lists(folder, sizes):
    for number, (level, kind, size) in enumerate(sizes):
        cache = folder / f"index{number}"
        cache.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (cache / name).write_text(f"{text}\n")


@pytest.fixture
def processor_with(tmp_path, monkeypatch):
    """A processor of which Linux lists these caches."""

    def processor_with(*sizes):
        linux_lists(tmp_path, sizes)
        monkeypatch.setattr(machine, "_CACHES", tmp_path)
        return CpuDevice()

    return processor_with


def test_caches_are_listed_in_kibibytes_or_mebibytes(processor_with):
    device = processor_with(
        ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "260M")
    )
    assert (device.core_cache_bytes, device.last_level_cache_bytes) == (2**21, 260 * 2**20)


def test_a_cache_that_linux_does_not_describe_is_left_out(processor_with):
    device = processor_with(("3", "Unified", "8M"), ("4", "Unified", ""), ("five", "Unified", "9M"))
    assert (device.core_cache_bytes, device.last_level_cache_bytes) == (0, 8 * 2**20)


@pytest.mark.parametrize("said", [None, "MemAvailable:", "MemAvailable: much"])
def test_without_linux_telling_it_free_memory_is_still_known(tmp_path, monkeypatch, said):
    if said:
        (tmp_path / "meminfo").write_text(said)
        (tmp_path / "memory.max").write_text(said)
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CONTROL_GROUP", tmp_path)
    assert 0 < memory.free_bytes() < memory.UNLIMITED


GIB = 2**30


@pytest.mark.parametrize(
    ("line", "top", "limit", "used", "inactive"),
    [
        ("0::", "", "memory.max", "memory.current", "inactive_file"),
        (
            *("4:cpu,memory:", "memory"),
            *("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_a_job_has_what_the_groups_around_it_leave(
    tmp_path, monkeypatch, line, top, limit, used, inactive
):
    """A step within a job, of which Slurm limits the job; a third of its use are old file pages."""
    step = tmp_path / top / "slurm/job_7/step_0"
    step.mkdir(parents=True)
    (tmp_path / "own").write_text(f"9:pids:/elsewhere\n{line}/slurm/job_7/step_0\n")
    (tmp_path / "meminfo").write_text(f"MemAvailable: {64 * GIB // 1024} kB")
    for name, path in (("_MEMORY", "meminfo"), ("_CONTROL_GROUP", ""), ("_OWN_GROUPS", "own")):
        monkeypatch.setattr(memory, name, tmp_path / path)
    assert memory.free_bytes() == 64 * GIB
    (step.parent / limit).write_text(f"{8 * GIB}\n")
    (step.parent / used).write_text(f"{6 * GIB}\n")
    assert memory.free_bytes() == 2 * GIB
    (step.parent / "memory.stat").write_text(f"anon {4 * GIB}\n{inactive} {2 * GIB}\n")
    assert memory.free_bytes() == 4 * GIB
    (step / limit).write_text("max\n")
    (step / used).write_text("0\n")
    assert memory.free_bytes() == 4 * GIB


def test_an_error_of_cuda_comes_without_pytorchs_advice_to_set_a_variable_that_is_refused():
    error = RuntimeError(
        "CUDA error: unspecified launch failure\nFor debugging consider passing CUDA_"
    )
    assert message(error) == "CUDA error: unspecified launch failure"
