"""The command: verbs are found, errors are one line with an exit code, and start-up imports nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.models.tiny_gguf import write_gguf

from edgellm.cli import main as cli
from edgellm.cli.main import VERBS, main
from edgellm.engines.build_profile import QUANTISATIONS
from edgellm.errors import CheckpointError
from edgellm.service.credentials import UNIT_FOLDER
from edgellm.service.private_ca import PrivateCa

NO_CONFIG = {"XDG_CONFIG_HOME": "/nonexistent"}


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    monkeypatch.setenv("EDGELLM_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("EDGELLM_CONFIG", "EDGELLM_DEBUG", "EDGELLM_MODEL"):
        monkeypatch.delenv(name, raising=False)


def err_of(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, verb in VERBS.items():
        assert name in out
        assert verb.summary in out


@pytest.mark.parametrize("name", list(VERBS))
def test_every_verb_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: edgellm {name}" in capsys.readouterr().out


def test_an_unknown_verb_names_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frob"]) == 64
    assert err_of(capsys).startswith("edgellm: there is no verb 'frob' — the verbs are serve, chat")


def test_a_verb_that_people_say_is_told_by_the_name_that_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollback"]) == 64
    assert "there is no verb 'rollback' — it is edgellm upgrade --rollback; the verbs are " in err_of(capsys)


def test_a_terminal_without_a_character_gets_its_escape(tmp_path: Path) -> None:
    (tmp_path / "edgellm.toml").write_text("[server]\ncors_origins = ['http://wäre.example…']\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "edgellm", "config", "show", "--config", str(tmp_path / "edgellm.toml")]
    shown = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert "http://wäre.example\\u2026".encode("latin-1") in shown.stdout


def test_doctor_blames_no_setting_that_nobody_made(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    out = capsys.readouterr().out
    assert "auto takes native" in out
    assert "runtime is set to" not in out


def test_an_unknown_option_points_to_the_verbs_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--frob"]) == 64
    assert err_of(capsys) == "edgellm: unrecognized arguments: --frob — see edgellm serve --help\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", "0"], "--threads: models[0].threads must be at least 1; leave it out to let edgellm choose"),
        (["--threads", "many"], "--threads: models[0].threads must be a whole number"),
        (["--port", "http"], "--port: server.port must be a whole number"),
        (["--port", "70000"], "--port: server.port must be at most 65535"),
        (["--queue-timeout", "-1"], "--queue-timeout: admission.queue_timeout_seconds must be greater than 0.0"),
        (["--max-queued-requests", "-1"], "--max-queued-requests: admission.max_queued_requests must be at least 0"),
        (["--log-level", "loud"], "--log-level: log.level must be 'debug', 'info', 'warning' or 'error'"),
        (["--config", "/nonexistent.toml"], "configuration file /nonexistent.toml: No such file or directory"),
        (["--model", "name="], "--model 'name=' — give NAME=SOURCE or SOURCE"),
        (["a=x.gguf", "a=y.gguf"], 'MODEL: models has the name "a" twice; each served model needs its own'),
    ],
)
def test_a_bad_value_is_one_line_with_the_option(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 78
    assert err_of(capsys).startswith(f"edgellm: {message}")


def test_an_error_of_ours_ends_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_words: list[str]) -> int:
        raise CheckpointError("model.gguf:\nis damaged")

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert main(["version"]) == 65
    assert err_of(capsys) == "edgellm: model.gguf: is damaged\n"


def test_a_defect_is_one_line_too_unless_debugging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_words: list[str]) -> int:
        raise KeyError("x")

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert main(["version"]) == 70
    assert err_of(capsys).startswith("edgellm: internal error (KeyError: 'x') — run again with --debug")
    with pytest.raises(KeyError):
        main(["version", "--debug"])
    monkeypatch.setenv("EDGELLM_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["version"])


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_dispatch", interrupt)
    assert main(["version"]) == 130
    assert capsys.readouterr().err == ""


def test_a_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    completed = subprocess.run(
        [sys.executable, "-m", "edgellm", "--help"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (completed.returncode, completed.stderr) == (141, "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        ("serve --help", 0),
        ("models list", 0),
        ("config show", 0),
        ("keys list --api-keys-file /nonexistent/keys", 78),
        ("engine list", 0),
        ("chat", 64),
        ("frob", 64),
    ],
)
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_one_that_nobody_reads(words: str, code: int, closed: str) -> None:
    def ran(redirection: str) -> tuple[int, str, str]:
        command = ["sh", "-c", f'exec "$0" -m edgellm {words} {redirection}', sys.executable]
        completed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return completed.returncode, completed.stdout, completed.stderr

    expected_code, output, errors = ran("")
    assert expected_code == code
    got = ran(closed)
    assert got == (
        expected_code,
        "" if ">&-" in closed.replace("2>&-", "") else output,
        "" if "2>&-" in closed else errors,
    )


def test_nothing_that_is_opened_takes_the_place_of_a_closed_stream() -> None:
    program = (
        "import os; from edgellm.cli.main import main; main(['version']);"
        "print(sorted(os.readlink(f'/proc/self/fd/{number}') for number in (1, 2)), file=open('/dev/fd/3', 'w'));"
        "os.system('echo lost; echo lost >&2')"
    )
    command = ["sh", "-c", 'exec "$0" -c "$1" 3>&1 >&- 2>&-', sys.executable, program]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.stdout == "['/dev/null', '/dev/null']\n"
    assert completed.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["serve", "--help"], ["config", "show"]])
def test_output_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        completed = subprocess.run(
            [sys.executable, "-m", "edgellm", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert completed.returncode == 74
    assert completed.stderr.startswith("edgellm: the output cannot be written (No space left on device) — ")
    assert completed.stderr.count("\n") == 1


@pytest.mark.parametrize("words", ["--help", "version", "serve --help", "config show"])
def test_output_that_is_open_for_reading_alone_is_one_line(words: str) -> None:
    command = ["sh", "-c", f'exec "$0" -m edgellm {words} 1</dev/null', sys.executable]
    completed = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert completed.returncode == 74
    assert completed.stderr.startswith("edgellm: the output cannot be written (Bad file descriptor) — ")
    assert completed.stderr.count("\n") == 1


@pytest.mark.parametrize(("words", "code"), [("frob", 64), ("version 1</dev/null", 74)])
@pytest.mark.parametrize("errors", ["2</dev/null", "2>/dev/full"])
def test_where_nothing_can_be_said_the_exit_code_still_holds(words: str, code: int, errors: str) -> None:
    command = ["sh", "-c", f'exec "$0" -m edgellm {words} {errors}', sys.executable]
    assert subprocess.run(command, capture_output=True, check=False).returncode == code


def test_a_verb_imports_only_what_it_needs() -> None:
    program = (
        "import sys; from edgellm.cli.main import main; main(['version']);"
        "heavy = {'pydantic', 'fastapi', 'numpy', 'tokenizers', 'edgellm._native'} & set(sys.modules);"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr


def test_the_module_is_the_command() -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "edgellm", "version"], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0
    assert completed.stdout.startswith("edgellm ")


def test_serve_takes_models_one_way_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "a.gguf", "--model", "b.gguf"]) == 64
    assert "give models as arguments or with --model, not both" in err_of(capsys)


def test_config_check_says_what_is_right_and_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "edgellm.toml"
    file.write_text("[server]\nport = 1\n")
    assert main(["config", "check", "--config", str(file)]) == 0
    assert capsys.readouterr().out == f"configuration is right ({file})\n"
    file.write_text("[server]\nprot = 1\n")
    assert main(["config", "check", "--config", str(file)]) == 78
    assert err_of(capsys) == f'edgellm: {file}: unknown key server.prot — did you mean "port"? (at line 2)\n'


def test_config_check_reads_certificates_but_not_those_that_a_running_service_was_handed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service without a certificate is handed a placeholder: it must be possible to give it one."""
    for name in ("certificate", "key"):
        (tmp_path / name).write_text("# none in /etc/edgellm/credentials\n")
        (tmp_path / name).chmod(0o600)
    file = tmp_path / "edgellm.toml"
    file.write_text(f'[server]\ntls_certificate_file = "{tmp_path}/certificate"\ntls_key_file = "{tmp_path}/key"\n')
    assert main(["config", "check", "--config", str(file)]) == 78
    assert "not PEM files that can be used" in err_of(capsys)
    monkeypatch.setattr("edgellm.cli.config.HANDED_OUT", tmp_path)
    assert main(["config", "check", "--config", str(file)]) == 0


def test_config_check_sees_that_the_service_would_be_handed_a_key_of_another_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = PrivateCa(tmp_path / "one"), PrivateCa(tmp_path / "other")
    for authority in (one, other):
        authority.init(["board"])
    handed = {UNIT_FOLDER / "tls-certificate": one.server_certificate, UNIT_FOLDER / "tls-key": other.server_key}
    monkeypatch.setattr("edgellm.service.credentials.handed_next", handed.get)
    file = tmp_path / "edgellm.toml"
    certificate, key = handed
    file.write_text(f'[server]\ntls_certificate_file = "{certificate}"\ntls_key_file = "{key}"\n')
    assert main(["config", "check", "--config", str(file)]) == 78
    assert f"{other.server_key} is not the key of {one.server_certificate}" in err_of(capsys)
    assert main(["config", "check", "--elsewhere", "--config", str(file)]) == 0
    beside = ["--tls-certificate-file", str(one.server_certificate), "--tls-key-file", str(one.server_key)]
    assert main(["config", "check", "--config", str(file), *beside]) == 0
    handed[key] = one.server_key
    assert main(["config", "check", "--config", str(file)]) == 0


@pytest.mark.parametrize("elsewhere", [(), ("--elsewhere",)], ids=["here", "elsewhere"])
def test_config_check_refuses_what_a_start_would(
    elsewhere: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With keys and certificate that are to take the places of those that the configuration names."""
    file, keys = tmp_path / "edgellm.toml", tmp_path / "keys"
    file.write_text('[server]\nhost = "0.0.0.0"\n')
    check = ["config", "check", *elsewhere, "--config", str(file)]
    assert main(check) == 78
    assert "host 0.0.0.0 would let everyone who reaches this machine use the model" in err_of(capsys)
    wrong = {
        "front desk:a-key-of-sixteen-letters\n": "line 1: expected name:key",
        "till:short\n": "line 1: a key needs at least 16 visible characters",
        "# none\n": "holds no key",
    }
    for text, said in wrong.items():
        keys.write_text(text)
        keys.chmod(0o600)
        assert main([*check, "--api-keys-file", str(keys)]) == 78
        assert said in err_of(capsys)
    assert main([*check, "--api-keys-file", str(tmp_path / "absent")]) == 78
    keys.write_text("till:a-key-of-sixteen-letters\n")
    assert main([*check, "--api-keys-file", str(keys)]) == 0
    one, other = PrivateCa(tmp_path / "one"), PrivateCa(tmp_path / "other")
    for authority in (one, other):
        authority.init(["board"])
    served = [*check, "--api-keys-file", str(keys), "--tls-certificate-file", str(one.server_certificate)]
    assert main([*served, "--tls-key-file", str(one.server_key)]) == 0
    capsys.readouterr()
    assert main([*served, "--tls-key-file", str(other.server_key)]) == 78
    assert f"{other.server_key} is not the key of {one.server_certificate}" in err_of(capsys)


def test_a_configuration_for_another_machine_is_refused_where_nobody_could_pair_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "edgellm.toml"
    check = ["config", "check", "--elsewhere", "--config", str(file)]
    file.write_text("[server]\nport = 9000\n")
    assert main(check) == 0
    capsys.readouterr()
    assert main([*check, "--pairable"]) == 78
    said = err_of(capsys)
    assert f"{file}: no client could pair with a server of it: clients need no key here — set server.api_keys" in said
    file.write_text("[pairing]\nenabled = false\n")
    assert main([*check, "--pairable"]) == 0
    assert main(["config", "check", "--config", str(file), "--pairable"]) == 64


def test_tls_init_keeps_a_certificate_that_does_where_it_is_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = PrivateCa(tmp_path / "tls")
    init = ["tls", "init", "--folder", str(made.folder), "--name", "board"]
    assert main([*init, "--if-needed"]) == 0
    certificate = made.server_certificate.read_bytes()
    capsys.readouterr()
    assert main([*init, "--if-needed"]) == 0
    assert capsys.readouterr().out == f"kept the certificate {made.server_certificate}\n"
    assert made.server_certificate.read_bytes() == certificate
    assert main([*init, "--if-needed", "--new-authority"]) == 0
    assert "made the authority" in capsys.readouterr().out
    assert main([*init, "--if-needed", "--name", "llm.example.org"]) == 0
    assert "made the certificate of" in capsys.readouterr().out
    assert made.server_certificate.read_bytes() != certificate
    assert main(init) == 0
    assert "made the certificate of" in capsys.readouterr().out


def test_config_show_is_toml_with_origins_that_reads_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tomllib

    file = tmp_path / "edgellm.toml"
    text = '[server]\nport = 81\n[[models]]\nsource = "m\\u0007.gguf"\n[models.sampling]\ntop_p = 0.5\n'
    file.write_text(text)
    monkeypatch.setenv("EDGELLM_LOG_LEVEL", "debug")
    assert main(["config", "show", "--config", str(file)]) == 0
    out = capsys.readouterr().out
    assert f"port = 81  # {file}" in out
    assert 'level = "debug"  # EDGELLM_LOG_LEVEL' in out
    shown = tomllib.loads(out)
    assert shown["models"][0]["source"] == "m\x07.gguf"
    assert shown["models"][0]["sampling"]["top_p"] == 0.5
    again = tmp_path / "again.toml"
    again.write_text(out)
    assert main(["config", "show", "--config", str(again)]) == 0


def test_models_list_says_what_is_here_and_how_to_get_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list"]) == 0
    assert "edgellm models add smollm2-135m-instruct" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "code"),
    [("./none.gguf", 78), ("./folder", 78), ("smollm2-135m-instruct", 0), ("Org/Name@main", 0), ("./here.gguf", 0)],
)
def test_config_check_finds_a_path_that_is_not_there(
    source: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "edgellm.toml"
    file.write_text(f'cache_dir = "{tmp_path}"\n[[models]]\nsource = "{source}"\n')
    (tmp_path / "here.gguf").write_bytes(b"GGUF")
    assert main(["config", "check", "--config", str(file)]) == code
    err = capsys.readouterr().err
    assert (f"{file}: models[0].source: {tmp_path / source}" in err) == (code != 0)


@pytest.mark.parametrize("place", ["file", "file/below"])
@pytest.mark.parametrize(
    "words",
    [("serve", "--port", "0"), ("engine", "list"), ("engine", "prune"), ("models", "list"), ("prewarm",)],
)
def test_a_cache_that_is_a_file_is_named_with_its_option(
    words: tuple[str, ...], place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main([*words, "--cache-dir", str(tmp_path / place)]) == 78
    err = err_of(capsys)
    assert f"cache_dir {tmp_path / place}: {tmp_path / 'file'} is not a folder" in err
    assert "--cache-dir" in err


def test_certificates_go_into_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["tls", "init", "--folder", str(place)]) == 78
        assert f"{place} is not a folder, or lies below a file — name another --folder" in err_of(capsys)


def test_the_readme_lists_the_verbs_and_the_weight_formats() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert f"- `edgellm {' | '.join(VERBS)}`." in readme
    assert f"`--quantisation {'|'.join(name for name in QUANTISATIONS if name != 'auto')}`" in readme


def test_models_add_refuses_what_the_catalogue_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "add", "nothing"]) == 64
    assert "it has: smollm2-135m-instruct" in err_of(capsys)


def test_models_show_names_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", "absent.gguf"]) == 66
    assert "absent.gguf" in err_of(capsys)


def test_models_show_tells_the_facts_of_a_gguf_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", VARIANTS["llama"])
    assert main(["models", "show", str(path)]) == 0
    out = capsys.readouterr().out
    for fact in ("name        tiny\n", "kind        gguf\n", "family      llama\n", f"path        {path}\n"):
        assert fact in out
    assert main(["models", "show", "--path", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"


def test_models_show_tells_the_facts_of_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_checkpoint(tmp_path / "tiny-qwen", VARIANTS["qwen2"])
    assert main(["models", "show", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "kind        safetensors\n" in out
    assert "family      qwen2\n" in out
