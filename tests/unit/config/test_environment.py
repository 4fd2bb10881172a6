"""Every setting has an environment variable; misspelt ones are refused, other programs' are left alone."""

from __future__ import annotations

import pytest

from edgellm.config import load_settings
from edgellm.config.environment import environment_variable, parse_model_argument, scalar_fields
from edgellm.errors import ConfigError

BASE = {"XDG_CONFIG_HOME": "/nonexistent"}


def test_values_become_the_types_of_their_settings() -> None:
    settings = load_settings(
        environ={
            **BASE,
            "EDGELLM_SERVER_PORT": "9",
            "EDGELLM_SERVER_CORS_ORIGINS": "http://a, http://b",
            "EDGELLM_SERVER_INSECURE_NO_KEYS": "yes",
            "EDGELLM_ADMISSION_REQUEST_TIMEOUT_SECONDS": "2.5",
            "EDGELLM_LOG_FORMAT": "json",
            "EDGELLM_CACHE_DIR": "/somewhere",
        }
    ).settings
    assert settings.server.port == 9
    assert settings.server.cors_origins == ("http://a", "http://b")
    assert settings.server.insecure_no_keys is True
    assert settings.admission.request_timeout_seconds == 2.5
    assert settings.log.format == "json"
    assert str(settings.cache_dir) == "/somewhere"


def test_a_wrong_value_names_variable_and_key() -> None:
    with pytest.raises(ConfigError, match=r"^EDGELLM_SERVER_PORT: server.port must be a whole number$"):
        load_settings(environ={**BASE, "EDGELLM_SERVER_PORT": "http"})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [("EDGELLM_PORT", "EDGELLM_SERVER_PORT"), ("EDGELLM_SERVER_PROT", "EDGELLM_SERVER_PORT")],
)
def test_a_misspelt_variable_is_refused_with_the_likely_one(variable: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable} is no setting of edgellm — did you mean {meant}"):
        load_settings(environ={**BASE, variable: "1"})


def test_variables_of_others_are_left_alone() -> None:
    load_settings(environ={**BASE, "EDGELLM_PLUGIN_PATH": "/x", "EDGELLM_DEBUG": "1", "PORT": "1"})


def test_a_name_that_nothing_reads_is_told_apart_from_those_of_others() -> None:
    loaded = load_settings(environ={**BASE, "EDGELLM_PLUGIN_PATH": "/x", "EDGELLM_URL": "x", "EDGELLM_THREADZ": "1"})
    assert loaded.unknown_variables == ("EDGELLM_THREADZ",)
    with pytest.raises(ConfigError, match="EDGELLM_THREADZ"):
        loaded.refuse_unknown_variables()
    load_settings(environ={**BASE, "EDGELLM_URL": "x"}).refuse_unknown_variables()


def test_no_two_settings_share_a_variable() -> None:
    names = [environment_variable(path) for path, _ in scalar_fields()]
    assert len(names) == len(set(names))


def test_the_model_variable_is_a_model_argument() -> None:
    settings = load_settings(environ={**BASE, "EDGELLM_MODEL": "tiny=/models/tiny.gguf"}).settings
    assert [(model.name, model.source) for model in settings.models] == [("tiny", "/models/tiny.gguf")]


def test_a_model_argument_is_a_source_or_a_name_with_a_source() -> None:
    assert parse_model_argument("a.gguf", "--model") == {"source": "a.gguf"}
    assert parse_model_argument("n=a=b.gguf", "--model") == {"name": "n", "source": "a=b.gguf"}


@pytest.mark.parametrize("text", ["", "=a.gguf", "name="])
def test_a_model_argument_without_name_or_source_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="give NAME=SOURCE or SOURCE"):
        parse_model_argument(text, "--model")
