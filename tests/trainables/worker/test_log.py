"""Claims about what is kept of what a worker prints."""

import os
import subprocess

import pytest

from bitfront.trainables.worker import log


@pytest.fixture
def printed(tmp_path):
    """A log that is open for appending, as Ray opens those of workers."""
    file = tmp_path / "worker.out"
    stream = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    yield file, stream
    os.close(stream)


def test_a_log_that_is_too_large_begins_anew_and_says_so(printed):
    file, stream = printed
    os.write(stream, b"old\n" * 500_000)
    log.shorten([stream], 1.0)
    os.write(stream, b"new\n")
    told, new = file.read_text().splitlines()
    assert told == "[bitfront] 2 MB that were printed before are gone (resources.log_mb: 1)"
    assert new == "new"


def test_a_child_process_goes_on_at_the_new_end(printed):
    file, stream = printed
    words = "head -c 2000000 /dev/zero; echo ready >&2; read line; echo $line"
    with subprocess.Popen(
        ["sh", "-c", words], stdin=subprocess.PIPE, stdout=stream, stderr=subprocess.PIPE
    ) as child:
        assert child.stderr.readline() == b"ready\n"
        log.shorten([stream], 1.0)
        child.communicate(b"later\n")
    assert file.read_text().splitlines()[1:] == ["later"]
    assert file.stat().st_size < 1000


def test_a_log_that_is_small_enough_is_left_alone(printed):
    file, stream = printed
    os.write(stream, b"x" * 900_000)
    log.shorten([stream], 1.0)
    assert file.stat().st_size == 900_000


def test_a_terminal_or_pipe_is_left_alone():
    reader, writer = os.pipe()
    os.write(writer, b"kept")
    log.shorten([writer], 1e-6)
    assert os.read(reader, 100) == b"kept"
    os.close(reader)
    os.close(writer)
