"""Every end of a start, of the server and of prewarming: an exit code, and one line of an error with cause and remedy.

The lines are as the journal gets them, where an error has its level before it, and systemd is told the same.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.models.tiny_gguf import write_gguf

from edgellm.cli.main import main
from edgellm.service.logs import ERROR_PREFIX

DEADLINE_SECONDS = 120.0
STATE_BYTES_MAX = 65_536
THE_END = "of what is sent to systemd"
REMEDY = " — "
KEY = "alice:alices-long-secret-key\n"


@dataclass
class Start:
    """Of a unit: everything that is wrong is in the configuration file, the environment or a file that one names."""

    folder: Path
    verb: str = "serve"
    server: str = "port = 0\n"
    more: str = ""
    model: str | None = None
    environ: dict[str, str] = field(default_factory=dict)
    until_the_end: ExitStack = field(default_factory=ExitStack)

    @property
    def config(self) -> Path:
        return self.folder / "edgellm.toml"

    def file(self, name: str, content: str | bytes, mode: int = 0o600) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    def write_config(self) -> None:
        if not self.config.exists():
            cache = "" if "EDGELLM_CACHE_DIR" in self.environ else f'cache_dir = "{self.folder}/cache"\n'
            models = f'[[models]]\nsource = "{self.model}"\n' if self.model else ""
            self.config.write_text(f"{cache}{self.more}\n[server]\n{self.server}{models}")


@dataclass(frozen=True)
class Ended:
    code: int
    errors: list[str]
    status: str
    log: str


def run(start: Start) -> Ended:
    start.write_config()
    log, address, states = start.folder / "journal", start.folder / "notify", list[str]()
    with log.open("wb") as stream, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(address))
        listening = threading.Thread(target=_listen, args=(systemd, states), daemon=True)
        listening.start()
        status = os.fstat(stream.fileno())
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("EDGELLM_", "HF_"))},
            "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}",
            "NOTIFY_SOCKET": str(address),
            "EDGELLM_CONFIG": str(start.config),
            "EDGELLM_ADMIN_SOCKET": str(start.folder / "admin.sock"),
            "HF_HUB_OFFLINE": "1",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(start.folder / "no-index"),
            **start.environ,
        }
        with start.until_the_end:
            done = subprocess.run(
                [sys.executable, "-m", "edgellm", start.verb],
                stdout=subprocess.DEVNULL,
                stderr=stream,
                env=environ,
                timeout=DEADLINE_SECONDS,
                check=False,
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(THE_END.encode(), str(address))
        listening.join()
    said = [line for state in states for line in state.splitlines() if line.startswith("STATUS=")]
    text = log.read_text()
    errors = [line.removeprefix(ERROR_PREFIX) for line in text.splitlines() if line.startswith(ERROR_PREFIX)]
    return Ended(done.returncode, errors, said[-1].removeprefix("STATUS=") if said else "", text)


def _listen(systemd: socket.socket, states: list[str]) -> None:
    while (state := systemd.recv(STATE_BYTES_MAX).decode()) != THE_END:
        states.append(state)


Prepare = Callable[[Start], None]
CAUSES: dict[str, tuple[int, str, str, Prepare]] = {}  # by name: exit code, what the line names, its remedy


def cause(code: int, named: str, remedy: str) -> Callable[[Prepare], Prepare]:
    def note(prepare: Prepare) -> Prepare:
        CAUSES[prepare.__name__.strip("_")] = (code, named, remedy, prepare)
        return prepare

    return note


@cause(78, "edgellm.toml is no valid TOML", "edgellm config check")
def _invalid_toml(start: Start) -> None:
    start.config.write_text("[server\nport = 8000\n")


@cause(78, "server.prot", 'did you mean "port"')
def _unknown_field(start: Start) -> None:
    start.server = "prot = 8000\n"


@cause(78, "server.port must be at most 65535", "edgellm config check")
def _wrong_value(start: Start) -> None:
    start.server = "port = 99999\n"


@cause(78, "EDGELLM_SERVER_PORT", "edgellm config check")
def _wrong_variable(start: Start) -> None:
    start.environ["EDGELLM_SERVER_PORT"] = "many"


@cause(78, "edgellm.toml", "check the path")
def _no_configuration_file(start: Start) -> None:
    start.environ["EDGELLM_CONFIG"] = str(start.folder / "nowhere/edgellm.toml")


@cause(66, "absent.gguf", "edgellm models list")
def _missing_gguf(start: Start) -> None:
    start.model = str(start.folder / "absent.gguf")


@cause(66, "model.bin", "give a GGUF file")
def _file_of_another_kind(start: Start) -> None:
    start.model = str(start.file("model.bin", "x"))


@cause(65, "text.gguf", "get it anew")
def _junk_gguf(start: Start) -> None:
    start.model = str(start.file("text.gguf", "this is no model at all, and longer than a header\n" * 20))


@cause(65, "empty.gguf", "get it anew")
def _empty_gguf(start: Start) -> None:
    start.model = str(start.file("empty.gguf", ""))


@cause(65, "cut.gguf", "get it anew")
def _truncated_gguf(start: Start) -> None:
    path = write_gguf(start.folder / "cut.gguf", VARIANTS["llama"])
    os.truncate(path, path.stat().st_size // 2)
    start.model = str(path)


@cause(65, "model.safetensors", "get it anew")
def _truncated_checkpoint(start: Start) -> None:
    folder = write_checkpoint(start.folder / "tiny", VARIANTS["llama"])
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size // 2)
    start.model = str(folder)


@cause(65, "config.json", "get it anew")
def _junk_in_a_checkpoint(start: Start) -> None:
    folder = write_checkpoint(start.folder / "tiny", VARIANTS["llama"])
    (folder / "config.json").write_text("{")
    start.model = str(folder)


@cause(65, "model_type", "give a model")
def _unsupported_family(start: Start) -> None:
    folder = write_checkpoint(start.folder / "tiny", VARIANTS["llama"])
    (folder / "config.json").write_text('{"model_type": "another"}')
    start.model = str(folder)


@cause(66, "smollm2-135m-instruct is not on this machine yet", "edgellm models add")
def _model_of_the_catalogue_that_was_not_fetched(start: Start) -> None:
    start.more = "[engines]\nbuild_on_start = false\n"


@cause(72, "no engine", "edgellm-prewarm")
def _missing_engine(start: Start) -> None:
    start.more = "[engines]\nbuild_on_start = false\n"
    start.model = str(write_checkpoint(start.folder / "tiny", VARIANTS["llama"]))


@cause(78, "cache_dir", "EDGELLM_CACHE_DIR")
def _cache_that_is_a_file(start: Start) -> None:
    start.model = str(write_gguf(start.folder / "tiny.gguf", VARIANTS["llama"]))
    start.environ["EDGELLM_CACHE_DIR"] = str(start.file("cache", ""))


@cause(73, "/sys/edgellm", "EDGELLM_CACHE_DIR")
def _cache_that_cannot_be_written(start: Start) -> None:
    start.model = str(write_gguf(start.folder / "tiny.gguf", VARIANTS["llama"]))
    start.environ["EDGELLM_CACHE_DIR"] = "/sys/edgellm"


@cause(73, "/proc/edgellm", "EDGELLM_CACHE_DIR")
def _cache_where_no_folder_can_be(start: Start) -> None:
    start.model = str(write_gguf(start.folder / "tiny.gguf", VARIANTS["llama"]))
    start.environ["EDGELLM_CACHE_DIR"] = "/proc/edgellm"


@cause(69, "is in use", "choose another port")
def _port_in_use(start: Start) -> None:
    listener = start.until_the_end.enter_context(socket.create_server(("127.0.0.1", 0)))
    start.server = f"port = {listener.getsockname()[1]}\n"


@cause(69, "192.0.2.1", "ip address")
def _address_of_another_machine(start: Start) -> None:
    start.server = 'port = 0\nhost = "192.0.2.1"\ninsecure_no_keys = true\n'


@cause(78, "host 0.0.0.0", "api_keys_file")
def _network_without_keys(start: Start) -> None:
    start.server = 'port = 0\nhost = "0.0.0.0"\n'


def _serve_tls(start: Start, certificate: Path, key: Path) -> None:
    start.server = f'port = 0\ntls_certificate_file = "{certificate}"\ntls_key_file = "{key}"\n'


@cause(78, "absent.crt", "edgellm tls init")
def _certificate_that_is_not_there(start: Start) -> None:
    _serve_tls(start, start.folder / "absent.crt", start.file("server.key", "x"))


@cause(78, "server.crt", "edgellm tls init")
def _certificate_that_is_none(start: Start) -> None:
    _serve_tls(start, start.file("server.crt", "no certificate\n"), start.file("server.key", "no key\n"))


@cause(78, "server.key is not the key of", "edgellm tls init")
def _key_of_another_certificate(start: Start) -> None:
    for name in ("one", "two"):
        assert main(["tls", "init", "--folder", str(start.folder / name)]) == 0
    _serve_tls(start, start.folder / "one/server.crt", start.folder / "two/server.key")


@cause(78, "server.key is open to every user", "chmod 600")
def _key_that_everybody_may_read(start: Start) -> None:
    assert main(["tls", "init", "--folder", str(start.folder / "tls")]) == 0
    (start.folder / "tls/server.key").chmod(0o644)
    _serve_tls(start, start.folder / "tls/server.crt", start.folder / "tls/server.key")


def _keys(start: Start, content: str, mode: int = 0o600) -> None:
    start.server = f'port = 0\napi_keys_file = "{start.file("api-keys", content, mode)}"\n'


@cause(78, "api-keys line 2", "a name has letters")
def _key_file_with_a_bad_line(start: Start) -> None:
    _keys(start, f"{KEY}bob\n")


@cause(78, "api-keys line 2", "edgellm keys add makes one")
def _key_file_with_a_short_key(start: Start) -> None:
    _keys(start, f"{KEY}bob:short\n")


@cause(78, "api-keys line 1", "edgellm keys add makes one")
def _key_file_with_a_damaged_hash(start: Start) -> None:
    _keys(start, "bob:sha256:0123\n")


@cause(78, "api-keys line 1: priority", "edgellm keys add")
def _key_file_with_an_unknown_priority(start: Start) -> None:
    _keys(start, "bob:bobs-long-enough-key priority=highest\n")


@cause(78, "api-keys holds no key", "edgellm keys add")
def _key_file_without_keys(start: Start) -> None:
    _keys(start, "# none\n")


@cause(78, "api-keys is open to every user", "chmod 600")
def _key_file_that_everybody_may_read(start: Start) -> None:
    _keys(start, KEY, 0o644)


@cause(78, "absent-keys", "check the path")
def _key_file_that_is_not_there(start: Start) -> None:
    start.server = f'port = 0\napi_keys_file = "{start.folder / "absent-keys"}"\n'


@cause(78, "admin_socket", "choose another path")
def _admin_socket_that_is_a_file(start: Start) -> None:
    start.environ["EDGELLM_ADMIN_SOCKET"] = str(start.file("socket", ""))


@cause(78, "records.file", "set it")
def _records_that_cannot_be_written(start: Start) -> None:
    start.more = '[records]\nfile = "/proc/edgellm/records"\n'


@cause(78, "CPU 4095", "name others")
def _cpus_that_are_not_there(start: Start) -> None:
    model = write_gguf(start.folder / "tiny.gguf", VARIANTS["llama"])
    start.more = f'[[models]]\nsource = "{model}"\ncpus = "4095"\n'


@cause(66, "tiny.gguf", "edgellm models list")
def _kind_of_another_model(start: Start) -> None:
    model = write_gguf(start.folder / "tiny.gguf", VARIANTS["llama"])
    start.more = f'[[models]]\nsource = "{model}"\nkind = "asr"\n'


@cause(68, "TensorRT Edge-LLM", "edgellm doctor")
def _runtime_that_is_not_there(start: Start) -> None:
    model = write_gguf(start.folder / "tiny.gguf", VARIANTS["llama"])
    start.more = f'[[models]]\nsource = "{model}"\nruntime = "tensorrt"\n'


@cause(65, "import/junk.tar", "copy it anew, or remove it")
def _junk_archive_to_import(start: Start) -> None:
    start.verb = "prewarm"
    start.model = str(write_checkpoint(start.folder / "tiny", VARIANTS["llama"]))
    start.file("cache/import/junk.tar", "no archive\n" * 100)


@cause(78, "import", "folder")
def _import_folder_that_is_a_file(start: Start) -> None:
    start.verb = "prewarm"
    start.file("cache/import", "")


@cause(75, "smollm2-135m-instruct", "check the network")
def _index_that_does_not_answer(start: Start) -> None:
    start.verb = "prewarm"


@cause(75, "HF_HUB_OFFLINE", "unset that")
def _hub_that_may_not_be_asked(start: Start) -> None:
    start.verb = "prewarm"
    start.model = "tiny-org/tiny-model"


@cause(65, "text.gguf", "get it anew")
def _junk_gguf_to_prewarm(start: Start) -> None:
    start.verb = "prewarm"
    start.model = str(start.file("text.gguf", "this is no model at all, and longer than a header\n" * 20))


@cause(78, "edgellm.toml is no valid TOML", "edgellm config check")
def _invalid_toml_to_prewarm(start: Start) -> None:
    start.verb = "prewarm"
    start.config.write_text("cache_dir = \n")


@cause(73, "/sys/edgellm", "EDGELLM_CACHE_DIR")
def _cache_that_prewarming_cannot_write(start: Start) -> None:
    start.verb = "prewarm"
    start.model = str(write_gguf(start.folder / "tiny.gguf", VARIANTS["llama"]))
    start.environ["EDGELLM_CACHE_DIR"] = "/sys/edgellm"


@pytest.mark.parametrize("name", CAUSES)
def test_the_journal_has_one_line_with_the_cause_and_the_remedy(name: str, tmp_path: Path) -> None:
    code, named, remedy, prepare = CAUSES[name]
    start = Start(tmp_path)
    prepare(start)
    ended = run(start)
    print(ended.code, ended.errors or ended.log, ended.status)
    assert ended.code == code, ended.log
    assert len(ended.errors) == 1, ended.log
    (line,) = ended.errors
    _, separator, after = line.partition(REMEDY)
    assert line.startswith("edgellm: ")
    assert named in line
    assert separator, line
    assert remedy.lower() in after.lower(), line
    assert "alices-long" not in line
    assert ended.status == line.removeprefix("edgellm: ")
