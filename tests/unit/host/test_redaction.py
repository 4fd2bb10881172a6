"""What goes out for support has no secret in it, however it was written down."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from edgellm.host.paths import HostPaths
from edgellm.host.redaction import Redaction
from edgellm.service.pairing.code import PairingCode

KEY = "edgellm-" + "k" * 43
OWN = "a-key-that-somebody-made-up"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


@pytest.fixture
def redaction(tmp_path: Path) -> Redaction:
    folder = tmp_path / "etc/edgellm/credentials"
    folder.mkdir(parents=True)
    (folder / "api-keys").write_text(f"# clients\nphone:{OWN}\nlaptop:sha256:{DIGEST} priority=high\n")
    (folder / "hub-token").write_text("hf_AbCdEfGhIjKlMnOpQrStUv\n")
    (folder / "tls-key").write_text("-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----\n")
    authority = tmp_path / "etc/edgellm/tls"
    authority.mkdir()
    (authority / "ca.key").write_text("-----BEGIN PRIVATE KEY-----\nMIGHAgEAOfTheAuthority\n-----END")
    (authority / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\nMIIBpublic\n-----END CERTIFICATE-----\n")
    state = HostPaths(tmp_path).state
    state.mkdir(parents=True)
    (state / "device-key").write_text("the-boards-own-key\n")
    return Redaction.of_host(HostPaths(tmp_path))


@pytest.mark.parametrize(
    "secret",
    [
        KEY,
        OWN,
        DIGEST,
        "hf_AbCdEfGhIjKlMnOpQrStUv",
        "MIGHAgEAMBMGByqGSM49",
        "MIGHAgEAOfTheAuthority",
        "the-boards-own-key",
        "hf_of_another_machine_0123456789",
        "sk-proj-0123456789abcdefgh",
        "90R2X-QH0CT-6PBE1-XSKFV",
    ],
)
@pytest.mark.parametrize(
    "around", ["{}", "said {} twice: {}", '"x": "{}"', "Authorization: Bearer {}", "https://u:{}@host/"]
)
def test_a_secret_is_taken_out_wherever_it_stands(redaction: Redaction, secret: str, around: str) -> None:
    assert secret not in redaction.text(around.format(secret, secret))


def test_every_pairing_code_is_a_secret(redaction: Redaction) -> None:
    for code in (str(PairingCode.make()) for _ in range(100)):
        assert code not in redaction.text(f"the code is {code}.")


def test_what_comes_with_a_url_or_a_header_is_a_secret(redaction: Redaction) -> None:
    assert "word" not in redaction.text("fetched https://name:word@hub.example/model")
    assert "short" not in redaction.text("authorization: bearer short")
    assert "word" not in redaction.text("fetched https://name:w@word@hub.example/model")
    assert "d29yZDp3b3Jk" not in redaction.text('{"Authorization": "Basic d29yZDp3b3Jk"}')
    assert "word" not in redaction.text('{"x-api-key": "word"}')
    for name in ("token", "access_token", "X-Amz-Signature", "X-Amz-Credential", "api-key", "sig"):
        said = redaction.text(f'GET "https://cdn.example/model.gguf?{name}=word&part=1" failed')
        assert said == f'GET "https://cdn.example/model.gguf?{name}=[removed]&part=1" failed'


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("etc/edgellm/edgellm.toml", 'hub_token = "swordfish"\n'),
        ("etc/edgellm/edgellm.toml", "tokens = ['another-one', 'swordfish']\n"),
        ("etc/environment", "HF_TOKEN=swordfish\n"),
        ("etc/systemd/system/edgellm.service.d/50-token.conf", '[Service]\nEnvironment="HF_TOKEN=swordfish" LEVEL=1\n'),
        ("etc/systemd/system/edgellm.service.d/50-proxy.conf", "Environment=HTTPS_PROXY=http://me:swordfish@proxy:1\n"),
        ("etc/containers/systemd/edgellm.container.d/50-token.conf", "[Container]\nEnvironment=HF_TOKEN=swordfish\n"),
    ],
)
def test_what_an_administrator_wrote_down_as_a_secret_is_one_everywhere(tmp_path: Path, file: str, text: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    redaction = Redaction.of_host(HostPaths(tmp_path))
    assert redaction.text("the hub did not take swordfish, on port 8000") == (
        "the hub did not take [removed], on port 8000"
    )


def test_a_number_of_tokens_is_no_secret_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "etc/edgellm").mkdir(parents=True)
    (tmp_path / "etc/edgellm/edgellm.toml").write_text("[generation]\nmax_new_tokens = 16777216\n")
    text = "memory_bytes 16777216"
    assert Redaction.of_host(HostPaths(tmp_path)).text(text) == text


def test_the_rest_stays(redaction: Redaction) -> None:
    text = (
        "model smollm2: ready after 1.2 s, sha256:abc, client phone, MIIBpublic, edgellm-prewarm.service: done\n"
        "https://edgellm-1a2b.local:8000/v1/models?limit=2 for operator@laptop: 7 tokens, a basic one\n"
    )
    assert redaction.text(text) == text


def test_a_configuration_loses_its_comments_and_the_values_of_secret_settings(redaction: Redaction) -> None:
    text = '# the password is swordfish\n[server]\napi_keys_file = "/etc/keys"\nhub_token = "swordfish"\nport = 8000\n'
    assert redaction.configuration(text) == (
        '[server]\napi_keys_file = "/etc/keys"\nhub_token = "[removed]"\nport = 8000\n'
    )


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('Environment="HF_TOKEN=swordfish"', 'Environment="HF_TOKEN="[removed]"'),
        ("Environment=LEVEL=debug HF_TOKEN=swordfish", 'Environment=LEVEL=debug HF_TOKEN="[removed]"'),
        ("ExecStart=/usr/bin/server --api-key=swordfish", 'ExecStart=/usr/bin/server --api-key="[removed]"'),
        ('hub = { token = "swordfish" }', 'hub = { token = "[removed]"'),
        ("    Secret_Word = swordfish", '    Secret_Word = "[removed]"'),
        ("SetCredential=hub:swordfish", 'SetCredential="[removed]"'),
        ('token = """\nswordfish\n"""', 'token = "[removed]"'),
        ("token = '''\nswordfish\n'''", 'token = "[removed]"'),
        ('token = """\nswordfish\nthat is not closed', 'token = "[removed]"'),
        ('tokens = [\n  "swordfish",\n  "and another",\n]\nport = 1', 'tokens = "[removed]"\nport = 1'),
        ("Environment=HF_TOKEN=\\\nsword\\\nfish\nNice=1", 'Environment=HF_TOKEN="[removed]"\nNice=1'),
    ],
)
def test_a_secret_setting_is_found_wherever_in_its_line_it_is(redaction: Redaction, line: str, kept: str) -> None:
    assert redaction.configuration(line) == f"{kept}\n"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("port = 8000  # the password is swordfish", "port = 8000"),
        ("; swordfish\nNice=1", "Nice=1"),
        ('name = "a # b"  # swordfish', 'name = "a # b"'),
        ("name = 'it is \"# b'  # swordfish", "name = 'it is \"# b'"),
        ('name = "a \\" # b" # swordfish', 'name = "a \\" # b"'),
        ('name = "is not closed # swordfish', 'name = "is not closed'),
        ("[server] # swordfish", "[server]"),
    ],
)
def test_comments_go_wherever_they_stand(redaction: Redaction, line: str, kept: str) -> None:
    assert redaction.configuration(line) == f"{kept}\n"
