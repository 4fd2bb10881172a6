"""Decoding in a process that can be killed: what comes out, and what becomes of files that take too much."""

from __future__ import annotations

import gc
import io
import os
import signal
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgellm.errors import RequestCancelledError, RequestError, UnsupportedModalityError
from edgellm.media.limits import MEBIBYTE_BYTES, REQUEST_PIXELS_MAX
from edgellm.media.media_decoder import DecodingJob, MediaDecoder
from edgellm.media.media_file import MediaFile
from edgellm.media.media_input import DecodedMedia, MediaInput, MediaKind

DEADLINE_SECONDS = 60.0
LARGE_SIDE = 7_900  # nearly the most pixels that an image may have


def image_input(content: bytes, place: str = "messages[0].content[0]") -> MediaInput:
    file = MediaFile.empty()
    file.append(content)
    return MediaInput("image", place, (file,))


def picture(colour: str, width: int = 8, height: int = 4) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "png")
    return file.getvalue()


def large_picture() -> bytes:
    """A small file that takes a second to decode and nothing that it may not take."""
    lines = zlib.compressobj(9)
    data = b"".join(lines.compress(bytes(1 + 3 * LARGE_SIDE)) for _ in range(LARGE_SIDE)) + lines.flush()
    header = struct.pack(">IIBBBBB", LARGE_SIDE, LARGE_SIDE, 8, 2, 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", header), (b"IDAT", data), (b"IEND", b"")):
        file += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return file


@pytest.fixture
def decoder() -> Iterator[MediaDecoder]:
    decoder = MediaDecoder()
    yield decoder
    decoder.close()


def decoded(decoder: MediaDecoder, *inputs: MediaInput) -> list[DecodedMedia]:
    return decoder.job(inputs).result()


def refusal(decoder: MediaDecoder, *inputs: MediaInput) -> RequestError:
    with pytest.raises(RequestError) as refused:
        decoded(decoder, *inputs)
    return refused.value


def children(pid: int | None) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_seconds = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline_seconds
        time.sleep(0.002)


class Waiting:
    """A job whose result a thread waits for."""

    def __init__(self, job: DecodingJob) -> None:
        self.job = job
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def ended(self) -> BaseException | None:
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()
        return self.error

    def _wait(self) -> None:
        try:
            self.job.result()
        except BaseException as error:
            self.error = error


def test_images_come_out_in_their_order(decoder: MediaDecoder) -> None:
    red, blue = decoded(decoder, image_input(picture("red")), image_input(picture("blue", 3, 5), "messages[1]"))
    assert (red.kind, red.place, red.samples.shape) == ("image", "messages[0].content[0]", (4, 8, 3))
    assert (blue.place, blue.samples.shape) == ("messages[1]", (5, 3, 3))
    assert (red.samples == (255, 0, 0)).all()
    assert (blue.samples == (0, 0, 255)).all()
    assert red.samples.dtype == np.uint8
    with pytest.raises(ValueError, match="read-only"):
        red.samples[0, 0, 0] = 1


def test_no_process_runs_before_the_first_job_and_none_after_the_end() -> None:
    decoder = MediaDecoder()
    assert decoder.pid is None
    decoded(decoder, image_input(picture("red")))
    process = decoder.pid
    assert process is not None
    decoder.close()
    assert not Path(f"/proc/{process}").exists()
    with pytest.raises(RequestCancelledError):
        decoded(decoder, image_input(picture("red")))


def test_the_part_that_is_wrong_is_named(decoder: MediaDecoder) -> None:
    error = refusal(decoder, image_input(picture("red")), image_input(b"no image", "messages[3].content[1]"))
    assert error.param == "messages[3].content[1]"
    assert error.message == "messages[3].content[1] must be an image: png, jpeg, webp, gif or bmp."
    assert "is empty" in refusal(decoder, image_input(b"")).message


def test_a_job_leaves_no_process_and_no_descriptor(decoder: MediaDecoder) -> None:
    given = image_input(picture("red"))
    decoded(decoder, given)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        decoded(decoder, given, given)
        refusal(decoder, image_input(b"no image"))
    wait_until(lambda: not children(decoder.pid))
    gc.collect()  # errors hold what they went through
    assert len(os.listdir("/proc/self/fd")) <= before


def test_the_files_of_a_request_are_not_changed(decoder: MediaDecoder) -> None:
    given = image_input(picture("red"))
    first, second = decoded(decoder, given), decoded(decoder, given)
    assert (first[0].samples == second[0].samples).all()
    with given.files[0].reader() as stream:
        assert stream.read() == picture("red")


def test_images_of_a_request_have_a_number_of_pixels_together(decoder: MediaDecoder) -> None:
    large = image_input(large_picture(), "messages[0].content[4]")
    pixels = LARGE_SIDE * LARGE_SIDE
    count = REQUEST_PIXELS_MAX // pixels
    assert (count + 1) * pixels > REQUEST_PIXELS_MAX
    assert [each.samples.size for each in decoded(decoder, *[large] * count)] == [3 * pixels] * count
    error = refusal(decoder, *[large] * (count + 1))
    assert error.param == large.place
    assert f"has {pixels} pixels, and the parts before it leave {REQUEST_PIXELS_MAX - count * pixels} of" in str(error)


def test_a_file_that_takes_too_much_memory_is_refused_and_the_next_one_is_served() -> None:
    decoder = MediaDecoder(memory_bytes_max=64 * MEBIBYTE_BYTES)
    error = refusal(decoder, image_input(large_picture()))
    assert error.param == "messages[0].content[0]"
    assert "memory" in error.message
    assert decoded(decoder, image_input(picture("red")))
    decoder.close()


def test_a_machine_with_little_memory_left_gives_a_file_a_share_of_it() -> None:
    available_bytes = 256 * MEBIBYTE_BYTES
    decoder = MediaDecoder(available_bytes=lambda: available_bytes)
    assert "memory" in refusal(decoder, image_input(large_picture())).message
    assert decoded(decoder, image_input(picture("red")))
    available_bytes = 2**40
    assert decoded(decoder, image_input(large_picture()))
    decoder.close()


def test_a_file_that_takes_too_long_is_refused_and_its_process_killed() -> None:
    decoder = MediaDecoder(seconds_max=0.05)
    assert "takes too long to decode: 0.05 s" in refusal(decoder, image_input(large_picture())).message
    wait_until(lambda: not children(decoder.pid))
    decoder.close()


def test_a_cancelled_job_ends_at_once_and_its_process_with_it(decoder: MediaDecoder) -> None:
    decoded(decoder, image_input(picture("red")))
    waiting = Waiting(decoder.job([image_input(large_picture())] * 4))
    wait_until(lambda: bool(children(decoder.pid)))
    waiting.job.cancel()
    assert isinstance(waiting.ended(), RequestCancelledError)
    wait_until(lambda: not children(decoder.pid))
    assert decoded(decoder, image_input(picture("red")))


def test_a_job_that_is_cancelled_before_it_began_never_begins(decoder: MediaDecoder) -> None:
    job = decoder.job([image_input(picture("red"))])
    job.cancel()
    with pytest.raises(RequestCancelledError):
        job.result()
    assert decoder.pid is None


def test_a_decoder_that_dies_of_a_file_costs_that_request_alone(decoder: MediaDecoder) -> None:
    decoded(decoder, image_input(picture("red")))
    waiting = Waiting(decoder.job([image_input(large_picture(), "messages[2].content[0]")] * 4))
    while not waiting.is_over:  # one that died before it began to decode is tried again
        for child in children(decoder.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGSEGV)
    error = waiting.ended()
    assert isinstance(error, RequestError)
    assert error.param == "messages[2].content[0]"
    assert decoded(decoder, image_input(picture("red")))


def test_a_process_that_ended_is_started_again(decoder: MediaDecoder) -> None:
    decoded(decoder, image_input(picture("red")))
    first = decoder.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert decoded(decoder, image_input(picture("red")))
    assert decoder.pid != first


@pytest.mark.parametrize("kind", ["video", "audio"])
def test_what_needs_a_package_that_is_not_there_is_refused_by_name(
    kind: MediaKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "av.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    decoder = MediaDecoder()
    given = MediaInput(kind, "messages[0].content[0]", image_input(b"\x00\x00\x00\x18ftypmp42").files)
    with pytest.raises(UnsupportedModalityError) as refused:
        decoder.job([given]).result()
    assert refused.value.param == "messages[0].content[0]"
    assert f"decodes no {kind}: its audio extra is not installed" in str(refused.value)
    assert decoded(decoder, image_input(picture("red")))  # images need none
    decoder.close()


def test_a_request_that_has_ended_is_not_decoded(decoder: MediaDecoder) -> None:
    given = image_input(picture("red"))
    given.files[0].close()
    with pytest.raises(RequestCancelledError):
        decoded(decoder, given)
