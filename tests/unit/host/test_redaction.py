"""What goes out for support has no secret in it, however it was written down."""

from __future__ import annotations

import hashlib
import json
import os
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
        ("run/systemd/system/edgellm-prewarm.service", "[Service]\nEnvironment=HF_TOKEN=swordfish\n"),
        ("etc/systemd/system/service.d/10-all.conf", "[Service]\nEnvironment=HF_TOKEN=swordfish\n"),
        ("etc/systemd/system.conf.d/10-all.conf", "[Manager]\nDefaultEnvironment=HF_TOKEN=swordfish\n"),
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
        ('hub = { token = "swordfish" }', 'hub = { token = "[removed]"'),
        ("    Secret_Word = swordfish", '    Secret_Word = "[removed]"'),
        ('token = """\nswordfish\n"""', 'token = "[removed]"'),
        ("token = '''\nswordfish\n'''", 'token = "[removed]"'),
        ('token = """\nswordfish\nthat is not closed', 'token = "[removed]"'),
        ('tokens = [\n  "swordfish",\n  "and another",\n]\nport = 1', 'tokens = "[removed]"\nport = 1'),
    ],
)
def test_a_secret_setting_is_found_wherever_in_its_line_it_is(redaction: Redaction, line: str, kept: str) -> None:
    assert redaction.configuration(line) == f"{kept}\n"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("port = 8000  # the password is swordfish", "port = 8000"),
        ('name = "a # b"  # swordfish', 'name = "a # b"'),
        ("name = 'it is \"# b'  # swordfish", "name = 'it is \"# b'"),
        ('name = "a \\" # b" # swordfish', 'name = "a \\" # b"'),
        ('name = "is not closed # swordfish', 'name = "is not closed'),
        ("[server] # swordfish", "[server]"),
    ],
)
def test_comments_go_wherever_they_stand(redaction: Redaction, line: str, kept: str) -> None:
    assert redaction.configuration(line) == f"{kept}\n"


DROP_IN = "etc/systemd/system/edgellm.service.d/50-own.conf"


def _of(root: Path, **files: str) -> Redaction:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Redaction.of_host(HostPaths(root))


@pytest.mark.parametrize(
    ("setting", "printed"),
    [
        ("Environment=API_KEY=firstsecret11 HF_TOKEN=secondsecret22", "firstsecret11 secondsecret22"),
        ('Environment="API_KEY=firstsecret11" "HF_TOKEN=secondsecret22"', "firstsecret11 secondsecret22"),
        ('Environment="MY_PASSPHRASE=correct horse battery" LEVEL=1', "correct horse battery"),
        ("Environment='MY_PASSPHRASE=correct horse battery'", "correct horse battery"),
        ('Environment=MY_PASSPHRASE="correct horse battery"', "correct horse battery"),
        (
            'Environment="OTHER=1" \\\n  "MY_PASSPHRASE=two words here" HF_TOKEN=another-word',
            "two words here another-word",
        ),
        ("Environment=OTHER=1 \\\n# between\n  ; them\n HF_TOKEN=another-word", "another-word"),
        ("Environment = HF_TOKEN=sword\\\nfish API_KEY=fishsword", "fishsword"),
        ("Environment=A_TOKEN=has%%sign123", "has%sign123 has%%sign123"),
        ("Environment=A_TOKEN=in-%E-folder-%q-unknown", "in-/etc-folder- -unknown"),
        ('Environment="A_TOKEN=a\\x20quoted\\"word\\""', 'a quoted"word"'),
        ("Environment=HF_TOKEN = afterablank", "afterablank"),
        ("Environment=HF_TOKEN= afterablank", "afterablank"),
        ('Environment="HF_TOKEN=not closed OTHER=1', "not closed OTHER=1"),
        ("Environment=DB_PASS=secretword DB_PWD=wordsecret", "secretword wordsecret"),
        ("Environment=HTTPS_PROXY=http://me:pa%%40ssword@proxy:1", "pa%40ssword pa@ssword"),
        ("SetCredential=hub-token:sec-ret-1234", "sec-ret-1234"),
        ("SetCredential = hub-token:two\\x20words\\nand-a-line", "two words\nand-a-line"),
        ("SetCredentialEncrypted=hub-token: \\\n Whxqht+dQJax1aZe \\\n AAAAAAAAbase64", "Whxqht+dQJax1aZe"),
        ("ExecStartPre=/usr/bin/fetch --hub-token sec-ret-1234 --api-key=key-of-it", "sec-ret-1234 key-of-it"),
        ("ExecStartPre=/bin/sh -c 'export TOKEN=\"in a script\"; run'", "in a script"),
        ("ExecStartPre=/usr/bin/fetch --password pay$$12345", "pay$12345"),
        ('ExecStartPre=/usr/bin/curl -H "X: Bearer abcdefgh123"', "abcdefgh123"),
        ("PodmanArgs=--env HF_TOKEN=sec-ret-1234 -eAPI_KEY=key-of-it", "sec-ret-1234 key-of-it"),
    ],
)
def test_every_secret_of_a_drop_in_is_taken_out_wherever_it_stands(tmp_path: Path, setting: str, printed: str) -> None:
    text = f"[Service]\n{setting}\nNice=1\n"
    redaction = _of(tmp_path, **{DROP_IN: text})
    said = redaction.text(f"said {printed}.\n{json.dumps(printed)}").replace("\\n", "\n")
    shown = redaction.unit(text)
    for secret in printed.split("\n"):
        assert secret not in said
        assert secret not in shown
    assert set(said) <= set('said [removed].\n" \\')
    assert shown.startswith("[Service]\n")
    assert shown.endswith("\nNice=1\n")


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('Environment="HF_TOKEN=swordfish" LEVEL=1', 'Environment="HF_TOKEN=[removed]" LEVEL=1'),
        ("Environment=LEVEL=debug HF_TOKEN=swordfish", 'Environment=LEVEL=debug "HF_TOKEN=[removed]"'),
        ("ExecStart=/usr/bin/server --api-key=swordfish", 'ExecStart=/usr/bin/server "--api-key=[removed]"'),
        ("SetCredential=hub:swordfish", "SetCredential=hub:[removed]"),
        ("Environment=HF_TOKEN=sword\\\nfish\nNice=1", 'Environment="HF_TOKEN=[removed]" fish\nNice=1'),
        ("; swordfish\nNice=1", "Nice=1"),
        ("# swordfish \\\nNice=1", "Nice=1"),
        ("Nice = 1", "Nice=1"),
        ("KeyringMode=private", "KeyringMode=private"),
        ("LoadCredential=hub-token:/etc/hub-token", "LoadCredential=hub-token:/etc/hub-token"),
        ("Environment=API_KEYS_FILE=/etc/api-keys", "Environment=API_KEYS_FILE=/etc/api-keys"),
    ],
)
def test_a_unit_is_shown_without_its_secrets(redaction: Redaction, line: str, kept: str) -> None:
    assert redaction.unit(line) == f"{kept}\n"


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("EnvironmentFile=/opt/secrets.env", "opt/secrets.env"),
        ("EnvironmentFile=-/opt/secrets.env", "opt/secrets.env"),
        ("EnvironmentFile=/opt/*.env", "opt/secrets.env"),
        ("EnvironmentFile=-%E/edgellm/%N.env", "etc/edgellm/edgellm.env"),
        ("EnvironmentFile=secrets.env", "etc/systemd/system/edgellm.service.d/secrets.env"),
    ],
)
def test_values_of_a_file_that_a_drop_in_names_are_secrets_too(tmp_path: Path, setting: str, name: str) -> None:
    variables = (
        '# of us\nANYTHING=a-plain-word  \nexport=x\n B = \'single quoted\'\nC="double \\"quoted\\" \nof two lines"\n'
        "D=goes\\\n-on\nURL=https://me:myselfandi@host/\nHOME_OF=/var/lib/edgellm\nPORT=123456789"
    )
    redaction = _of(tmp_path, **{DROP_IN: f"[Service]\n{setting}\n", name: variables})
    said = redaction.text(
        "a-plain-word, single quoted, 'single quoted', double \"quoted\" \nof two lines, goes-on, myselfandi, "
        "/var/lib/edgellm, 123456789"
    )
    assert said == (
        "[removed], [removed], [removed], [removed] \n[removed], goes-on, [removed], /var/lib/edgellm, 123456789"
    )  # goes-on has seven characters


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("LoadCredential=hub-token:/root/token", "root/token"),
        ("LoadCredential=all:/root/tokens", "root/tokens/one"),
        ("LoadCredential=hub-token", "etc/credstore/hub-token"),
        ("ImportCredential=hub-*", "usr/lib/credstore/hub-token"),
    ],
)
def test_credentials_that_a_drop_in_names_are_secrets_too(tmp_path: Path, setting: str, name: str) -> None:
    redaction = _of(tmp_path, **{DROP_IN: f"[Service]\n{setting}\n", name: "sec-ret-1234\n"})
    assert redaction.text("said sec-ret-1234") == "said [removed]"


def test_a_remark_in_the_place_of_a_credential_is_no_secret(tmp_path: Path) -> None:
    redaction = _of(tmp_path, **{DROP_IN: "[Service]\nSetCredential=api-keys:# none in /etc/edgellm/credentials\n"})
    assert redaction.text("keys of /etc/edgellm/credentials") == "keys of /etc/edgellm/credentials"


@pytest.mark.parametrize(
    "text",
    [
        'hub_token = "two words here"\n',
        'hub_token = """\ntwo words here\n"""\n',
        'hub = { token = "two words here" }\n',
        "[hub.tokens]\nfirst = 'two words here'\n",
        'hub_token = "two words here"\nnot right\n',
    ],
)
def test_a_secret_of_several_words_in_the_configuration_is_taken_out_whole(tmp_path: Path, text: str) -> None:
    redaction = _of(tmp_path, **{"etc/edgellm/edgellm.toml": text})
    assert redaction.text("said two words here.") == "said [removed]."


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    redaction = _of(tmp_path, **{DROP_IN: "[Service]\nEnvironmentFile=/pipe\nLoadCredential=a:/pipe\n"})
    assert redaction.text("said") == "said"
