"""Settings come from flags, environment, file and defaults, in that order; what is wrong is named with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from edgellm.config import Flag, LoadedSettings, ModelSettings, load_settings
from edgellm.config.environment import parse_text
from edgellm.config.load import default_files
from edgellm.engines.build_profile import AS_IS, QUANTISATIONS
from edgellm.errors import ConfigError

NO_ENVIRONMENT: dict[str, str] = {"XDG_CONFIG_HOME": "/nonexistent"}


def load(text: str, folder: Path, **arguments: object) -> LoadedSettings:
    file = folder / "edgellm.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file=file, **{"environ": NO_ENVIRONMENT, **arguments})  # type: ignore[arg-type]


def complaint(text: str, folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, folder)
    assert caught.value.exit_code == 78
    return str(caught.value).replace(f"{folder}/", "")


def test_without_anything_the_defaults_hold() -> None:
    loaded = load_settings(environ=NO_ENVIRONMENT)
    assert loaded.file is None
    assert loaded.origins == {}
    assert loaded.settings.server.port == 8000
    assert loaded.settings.server.host is None
    assert loaded.settings.admission.max_queued_requests == 16
    assert loaded.settings.admission.queue_timeout_seconds == 600
    assert loaded.settings.models == ()


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    text = '[server]\nport = 1001\nhost = "10.0.0.1"\nunknown_fields = "ignore"\n'
    environ = {**NO_ENVIRONMENT, "EDGELLM_SERVER_PORT": "1002", "EDGELLM_SERVER_HOST": "10.0.0.2"}
    loaded = load(text, tmp_path, environ=environ, flags={("server", "port"): Flag(1003, "--port")})
    server = loaded.settings.server
    assert (server.port, server.host, server.unknown_fields) == (1003, "10.0.0.2", "ignore")
    assert server.connections_max == 1024
    assert loaded.origins == {
        "server.port": "--port",
        "server.host": "EDGELLM_SERVER_HOST",
        "server.unknown_fields": str(tmp_path / "edgellm.toml"),
    }


def test_settings_are_frozen(tmp_path: Path) -> None:
    settings = load("", tmp_path).settings
    with pytest.raises(ValueError, match="frozen"):
        settings.server.port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nprot = 1", 'edgellm.toml: unknown key server.prot — did you mean "port"?'),
        ("serv = 1", 'edgellm.toml: unknown key serv — did you mean "server"?'),
        (
            "[[models]]\nsource = 'm'\nthreds = 2",
            'edgellm.toml: unknown key models[0].threds — did you mean "threads"?',
        ),
        (
            "[log]\nzzz = 2",
            "edgellm.toml: unknown key log.zzz — known keys there: level, format",
        ),
        ("server = 1", "edgellm.toml: server must be a table"),
        ("models = 1", "edgellm.toml: models must be a list"),
        ('[server]\nport = "8000"', "edgellm.toml: server.port must be a whole number"),
        ("[server]\nport = 8.5", "edgellm.toml: server.port must be a whole number"),
        ("[server]\nport = true", "edgellm.toml: server.port must be a whole number"),
        ("[server]\nport = 70000", "edgellm.toml: server.port must be at most 65535"),
        ("[server]\nport = -1", "edgellm.toml: server.port must be at least 0"),
        ('[server]\nhost = ""', "edgellm.toml: server.host must not be empty"),
        ('[server]\ncors_origins = "x"', "edgellm.toml: server.cors_origins must be a list"),
        (
            '[server]\ntrusted_gateways = ["10.0.0.0/8", "10.0.0.1/8"]',
            "edgellm.toml: server.trusted_gateways holds what is no address or network: 10.0.0.1/8 has host bits set",
        ),
        (
            '[server]\ntrusted_gateways = ["gateway.lan"]',
            "edgellm.toml: server.trusted_gateways holds what is no address or network: "
            "'gateway.lan' does not appear to be an IPv4 or IPv6 network",
        ),
        (
            '[server]\ncors_origins = ["not a url"]',
            "edgellm.toml: server.cors_origins holds 'not a url', which is no origin — give SCHEME://HOST or "
            'SCHEME://HOST:PORT without a path, such as https://app.example, or "*" for any',
        ),
        (
            '[server]\nallowed_hosts = ["a b"]',
            "edgellm.toml: server.allowed_hosts holds 'a b', which is no host name — give names or addresses without "
            'scheme and port, such as board.example, .example for every name below it, or "*" for any',
        ),
        (
            "[server]\nport = 1\ntls_key_file = '/x'",
            "edgellm.toml: server.tls_key_file needs tls_certificate_file (--tls-certificate-file) too; edgellm tls "
            "init makes both",
        ),
        ("[server]\ncors_origins = [1]", "edgellm.toml: server.cors_origins must be a text"),
        ("[server]\ninsecure_no_keys = 1", "edgellm.toml: server.insecure_no_keys must be true or false"),
        (
            "[admission]\nqueue_timeout_seconds = nan",
            "edgellm.toml: admission.queue_timeout_seconds must be a finite number",
        ),
        (
            "[admission]\nqueue_timeout_seconds = 0",
            "edgellm.toml: admission.queue_timeout_seconds must be greater than 0.0",
        ),
        ('[log]\nlevel = "loud"', "edgellm.toml: log.level must be 'debug', 'info', 'warning' or 'error'"),
        ("[[models]]\nthreads = 1", "edgellm.toml: models[0].source is required"),
        ("[[models]]\nsource = 'm'\n" * 33, "edgellm.toml: models may hold at most 32 entries"),
        (
            "[[models]]\nsource = 'm'\nthreads = 0",
            "edgellm.toml: models[0].threads must be at least 1; leave it out to let edgellm choose",
        ),
        (
            "[[models]]\nsource = 'm'\nname = 'a/../etc'",
            "edgellm.toml: models[0].name may hold only letters, digits and . _ : / @ + -, no two dots in a row, "
            "and starts with a letter or digit",
        ),
        (
            f"[[models]]\nsource = 'm'\nname = '{'a' * 129}'",
            "edgellm.toml: models[0].name may have at most 128 characters",
        ),
        (
            "[[models]]\nsource = 'm'\ncpus = 'abc'",
            "edgellm.toml: models[0].cpus must be a list of CPU numbers and ranges, such as 0-3,6",
        ),
        (
            "[[models]]\nsource = 'm'\ncpus = '0,3-1'",
            "edgellm.toml: models[0].cpus has the range 3-1, which ends before it begins",
        ),
        (
            "[[models]]\nsource = 'm'\nquantisation = 'q9'",
            "edgellm.toml: models[0].quantisation must be 'auto', 'f32', 'f16', 'q8_0', 'q4_0', 'q4_1' or 'as-is'",
        ),
        (
            "[[models]]\nsource = 'm'\nidle_timeout_seconds = 5",
            'edgellm.toml: models[0].idle_timeout_seconds needs residency = "on_demand": an "always" model stays '
            "loaded",
        ),
        (
            "[[models]]\nsource = 'm'\n[models.sampling]\ntemperature = 3",
            "edgellm.toml: models[0].sampling.temperature must be at most 2.0",
        ),
        (
            "[[models]]\nsource = 'm'\nname = 'a'\n[[models]]\nsource = 'n'\nname = 'a'",
            'edgellm.toml: models has the name "a" twice; each served model needs its own',
        ),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(text: str, message: str, tmp_path: Path) -> None:
    said, at, line = complaint(text, tmp_path).rpartition(" (at line ")
    assert (said, at) == (message, " (at line ")
    assert line.removesuffix(")").isdecimal()


LONG_LIST = ",\n".join(f'"10.0.0.{number}"' for number in range(50))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[server]\nprot = 1\n", 2),
        ("# [server]\n\n[server]  # port = 0\nhost = 'a'\n\n  port = 'x'\n", 6),
        ("[server]\r\nhost = 'a'\r\nport = 'x'\r\n", 3),
        ("server.host = 'a'\nserver.port = 'x'\n", 2),
        ("[log]\nlevel = 'info'\n[server]\nport = 'x'", 4),
        ("server = {host = 'a', port = 'x'}", 1),
        ("[[models]]\nsource = 'm'\n[[models]]\n\nsource = 'n'\nthreads = 0\n", 6),
        ("[[models]]\nsource = 'm'\n[[models]]\nname = 'n'\n[[models]]\nsource = 'o'\n", 3),
        ("[[models]]\nsource = 'm'\n[[models]]\nsource = 'n'\n[models.sampling]\ntop_p = 7.0\n", 6),
        ("models = [\n {source = 'm'},\n {source = 'n', threads = 0},\n]\n", 1),
        (f"[server]\ntrusted_gateways = [\n{LONG_LIST},\n]\nport = 'x'\n", 54),
        ("[server]\nhost = '''\n[server]\nport = 1\n'''\nport = 'x'\n", 6),
        ("[server]\nhost = 'a\u2028b'\nport = 'x'\n", 3),
        ("[server]\ntls_key_file = 'k'\n", 2),
        ("[[models]]\nsource = 'm'\nname = 'a'\n[[models]]\nsource = 'n'\nname = 'a'", 1),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, line: int, tmp_path: Path) -> None:
    assert complaint(text, tmp_path).endswith(f" (at line {line})")


def test_behind_a_value_with_too_many_lines_the_table_is_named(tmp_path: Path) -> None:
    text = "[server]\ncors_origins = [\n" + '"*",\n' * 3_000 + "]\nport = 'x'\n"
    assert complaint(text, tmp_path) == "edgellm.toml: server.port must be a whole number (at line 1)"


def test_a_flag_has_no_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--port: server.port must be at most 65535$"):
        load("[server]\nport = 1\n", tmp_path, flags={("server", "port"): Flag(70000, "--port")})


def test_a_file_that_lacks_its_other_is_named_by_its_flag_and_no_other() -> None:
    flags = {("server", "port"): Flag(8199, "--port"), ("server", "tls_key_file"): Flag("x", "--tls-key-file")}
    with pytest.raises(ConfigError, match=r"^--tls-key-file: .*needs tls_certificate_file \(--tls-certificate-file\)"):
        load_settings(environ=NO_ENVIRONMENT, flags=flags)


@pytest.mark.parametrize(
    ("setting", "entries"),
    [
        ("cors_origins", ["*", "https://app.example", "http://[::1]:3000", "http://a:80", "app://x"]),
        ("allowed_hosts", ["*", "board", "board.example", ".local", "::1", "10.0.0.1"]),
    ],
)
def test_entries_of_the_allow_lists_that_can_match_are_taken(setting: str, entries: list[str]) -> None:
    flags = {("server", setting): Flag(entries, "flag")}
    settings = load_settings(environ=NO_ENVIRONMENT, flags=flags).settings
    assert list(getattr(settings.server, setting)) == entries


@pytest.mark.parametrize(
    ("setting", "entry"),
    [
        *(("cors_origins", entry) for entry in ("https://a/", "a.example", "https://a b", "https://", "http://a:b")),
        *(("allowed_hosts", entry) for entry in ("http://a", "a:80", "a/b", "*.example", "[::1]")),
    ],
)
def test_entries_of_the_allow_lists_that_never_match_are_refused(setting: str, entry: str) -> None:
    with pytest.raises(ConfigError, match=f"flag: server.{setting} holds "):
        load_settings(environ=NO_ENVIRONMENT, flags={("server", setting): Flag([entry], "flag")})


def test_a_models_quantisation_is_one_that_engines_know() -> None:
    (choice, _) = get_args(ModelSettings.model_fields["quantisation"].annotation)
    assert get_args(choice) == (*QUANTISATIONS, AS_IS)


def test_broken_toml_names_the_file_and_the_place(tmp_path: Path) -> None:
    assert complaint("port = = 1", tmp_path).startswith("configuration file edgellm.toml is no valid TOML: ")
    assert "line 1" in complaint("port = = 1", tmp_path)


def test_deep_nesting_is_refused_and_not_a_crash(tmp_path: Path) -> None:
    assert "is no valid TOML" in complaint("x = " + "[" * 100_000, tmp_path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "edgellm.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="byte 0 is not UTF-8"):
        load_settings(file=file, environ=NO_ENVIRONMENT)


def test_a_huge_file_is_refused_without_parsing(tmp_path: Path) -> None:
    file = tmp_path / "edgellm.toml"
    with file.open("wb") as stream:
        stream.truncate(2**31)
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        load_settings(file=file, environ=NO_ENVIRONMENT)


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.toml: No such file or directory — check the path"):
        load_settings(file=tmp_path / "absent.toml", environ=NO_ENVIRONMENT)


def test_a_folder_as_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a regular file"):
        load_settings(file=tmp_path, environ=NO_ENVIRONMENT)


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("[server]\nport = 7\n")
    assert load_settings(environ={"EDGELLM_CONFIG": str(file)}).settings.server.port == 7


def test_the_first_default_file_counts_alone(tmp_path: Path) -> None:
    file = tmp_path / "edgellm" / "edgellm.toml"
    file.parent.mkdir()
    file.write_text("[server]\nport = 9\n")
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert default_files(environ)[0] == file
    assert load_settings(environ=environ).settings.server.port == 9


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    loaded = load(
        'cache_dir = "cache"\n[server]\napi_keys_file = "keys"\n[[models]]\nsource = "./m.gguf"\n'
        '[[models]]\nsource = "smollm2-135m-instruct"\n',
        tmp_path,
    )
    settings = loaded.settings
    assert settings.cache_dir == tmp_path / "cache"
    assert settings.server.api_keys_file == tmp_path / "keys"
    assert [model.source for model in settings.models] == [f"{tmp_path}/m.gguf", "smollm2-135m-instruct"]


def test_a_model_flag_replaces_the_models_of_the_file(tmp_path: Path) -> None:
    flags = {("models",): Flag([{"source": "b.gguf"}], "--model")}
    loaded = load('[[models]]\nsource = "a.gguf"\nthreads = 3\n', tmp_path, flags=flags)
    (model,) = loaded.settings.models
    assert (model.source, model.threads) == ("b.gguf", None)
    assert loaded.origins == {"models[0].source": "--model"}


def test_a_model_option_applies_to_every_model(tmp_path: Path) -> None:
    text = '[[models]]\nsource = "a.gguf"\nthreads = 3\n[[models]]\nsource = "b.gguf"\n'
    loaded = load(text, tmp_path, model_flags={"threads": Flag(5, "--threads")})
    assert [model.threads for model in loaded.settings.models] == [5, 5]
    assert loaded.origins["models[1].threads"] == "--threads"


def test_a_wrong_flag_is_named_by_its_spelling(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--threads: models\[0\].threads must be at least 1; leave it out"):
        load('[[models]]\nsource = "a"\n', tmp_path, model_flags={"threads": Flag(0, "--threads")})


def test_a_model_option_without_models_is_for_the_default_model() -> None:
    loaded = load_settings(environ=NO_ENVIRONMENT, model_flags={"threads": Flag(2, "--threads")})
    assert [(model.source, model.threads) for model in loaded.settings.served_models] == [("smollm2-135m-instruct", 2)]


def test_without_models_the_default_one_is_served() -> None:
    settings = load_settings(environ=NO_ENVIRONMENT).settings
    assert [model.source for model in settings.served_models] == ["smollm2-135m-instruct"]


def test_engine_folders_of_a_file_are_taken_from_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "edgellm.toml"
    file.write_text('[engines]\nread_only_dirs = ["baked", "/usr/share/other"]\ncache_max_size_gb = 0.5\n')
    engines = load_settings(file=file, environ={}).settings.engines
    assert engines.read_only_dirs == (str(tmp_path / "baked"), "/usr/share/other")
    assert engines.cache_max_size_gb == 0.5
    assert engines.build_on_start
    file.write_text("[engines]\ncache_max_size_gb = 0\n")
    with pytest.raises(ConfigError, match=r"engines.cache_max_size_gb must be greater than 0"):
        load_settings(file=file, environ={})


def speculative_flag(text: str) -> Flag:
    """As the command line reads it."""
    value = parse_text(text, ModelSettings.model_fields["speculative_config"].annotation, "--speculative-config")
    return Flag(value, "--speculative-config")


SPECULATIVE_TABLE = """
[[models]]
source = "m"
draft_top_k = 2
[models.speculative_config]
method = "eagle3"
model = "org/draft"
num_speculative_tokens = 5
"""


def test_speculative_decoding_is_a_table_in_a_file_and_json_on_the_command_line(tmp_path: Path) -> None:
    expected = {"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 5}
    (model,) = load(SPECULATIVE_TABLE, tmp_path).settings.models
    assert model.speculative_config is not None
    assert (model.speculative_config.model_dump(), model.draft_top_k) == (expected, 2)
    flag = speculative_flag(json.dumps(expected))
    (model,) = load_settings(environ=NO_ENVIRONMENT, model_flags={"speculative_config": flag}).settings.served_models
    assert model.speculative_config is not None
    assert model.speculative_config.model_dump() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{bad", r"^--speculative-config is not JSON: expecting property name .* at character 2$"),
        ('{"method":\n mtp}', r"^--speculative-config is not JSON: expecting value at line 2, character 2$"),
        ("[" * 100_000, r"^--speculative-config is not JSON that can be read: it is nested too deep$"),
        ('"eagle3"', r"--speculative-config: models\[0\]\.speculative_config must be a table"),
        ('{"method": "gemma4_mtp"}', r"--speculative-config: .*method must be 'eagle3', 'mtp'"),
        ('{"model": "d"}', r"speculative_config\.method is required"),
        ('{"method": "mtp", "tokens": 3}', r"--speculative-config: .*tokens"),
        ('{"method": "mtp", "num_speculative_tokens": 0}', r"--speculative-config: .*must be at least 1"),
    ],
)
def test_a_wrong_speculative_config_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(environ=NO_ENVIRONMENT, model_flags={"speculative_config": speculative_flag(text)})


def test_a_home_that_cannot_be_looked_into_holds_no_file() -> None:
    # As for another user under sudo -u; root may look into every folder, but not into one with such a name.
    environ = {"XDG_CONFIG_HOME": f"/{'a' * 300}"}
    assert load_settings(environ=environ).settings == load_settings(environ=NO_ENVIRONMENT).settings
