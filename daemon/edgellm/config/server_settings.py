"""The tables of the HTTP server, and of how its clients get keys."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from edgellm.config import limits
from edgellm.config.network_names import require_host, require_origin
from edgellm.config.section import Flag, Seconds, Section, Text, Whole
from edgellm.config.setting_error import SettingError


class ServerSettings(Section):
    """Where and how HTTP is served."""

    host: Text | None = Field(
        default=None, description="Address to bind. Unset: 127.0.0.1 without API keys, 0.0.0.0 with API keys."
    )
    port: Annotated[Whole, Field(ge=0, le=limits.PORT_MAX)] = Field(
        default=8000, description="TCP port to bind; 0 takes a free one and prints it."
    )
    api_keys_file: Path | None = Field(
        default=None,
        description="API keys, one client a line as `name:key` or `name:sha256:HEX`; closed to other users. "
        "`edgellm keys` makes and revokes them; changes hold at once.",
    )
    tls_certificate_file: Path | None = Field(
        default=None,
        description="Certificate (PEM, with its chain) to serve HTTPS with; needs `tls_key_file`. "
        "`edgellm tls init` makes both; a renewed one holds at once.",
    )
    tls_key_file: Path | None = Field(
        default=None, description="Private key (PEM, without a password) of the certificate; closed to other users."
    )
    tls_authority_file: Path | None = Field(
        default=None,
        description="Certificate (PEM) of the private authority that vouches for the server's; clients that pair are "
        "given it. Unset: `ca.crt` beside `tls_certificate_file`, where there is one.",
    )
    insecure_no_keys: Flag = Field(
        default=False,
        description="Allow a bind beyond this machine without API keys. Anyone who reaches the port may use it.",
    )
    unknown_fields: Literal["refuse", "ignore"] = Field(
        default="refuse", description="What an unknown request field does: a 400 that names it, or nothing."
    )
    request_body_bytes_max: Annotated[
        Whole, Field(ge=limits.REQUEST_BODY_BYTES_MIN, le=limits.REQUEST_BODY_BYTES_MAX)
    ] = Field(default=8 * 2**20, description="Largest request body; beyond it the answer is 413.")
    stored_responses_max: Annotated[Whole, Field(ge=0, le=limits.STORED_RESPONSES_MAX)] = Field(
        default=1024,
        description="Answers of `/v1/responses` kept in memory for `previous_response_id`; the oldest go first. "
        "0 keeps none and refuses the field.",
    )
    stored_responses_bytes_max: Annotated[Whole, Field(ge=0, le=limits.STORED_RESPONSES_BYTES_MAX)] = Field(
        default=32 * 2**20, description="Memory for them, with the conversations they end; 0 keeps none."
    )
    cors_origins: tuple[Text, ...] = Field(
        default=(), description='Origins a browser may call from; `"*"` allows every one.'
    )
    allowed_hosts: tuple[Text, ...] = Field(
        default=(),
        description="Names accepted in the Host header, beside this machine's own names, `.local` and addresses.",
    )
    trusted_gateways: tuple[Text, ...] = Field(
        default=(),
        description="Addresses or networks (CIDR) of gateways, such as `10.0.0.5` or `10.0.1.0/24`. What they say in "
        "`X-Forwarded-For` or `Forwarded` tells limits by address and the log who the client is; anybody else's is "
        "passed over.",
    )
    requests_per_minute: Annotated[Whole, Field(ge=1, le=limits.REQUESTS_PER_MINUTE_MAX)] | None = Field(
        default=None, description="Requests one client may send in a minute; beyond it the answer is 429. Unset: any."
    )
    concurrent_requests_per_client: Annotated[Whole, Field(ge=1, le=limits.CONNECTIONS_MAX)] | None = Field(
        default=None,
        description="Requests one client may have running and waiting; beyond it the answer is 429. Unset: any.",
    )
    connections_max: Annotated[Whole, Field(ge=1, le=limits.CONNECTIONS_MAX)] = Field(
        default=1024, description="Connections served at the same time."
    )
    connections_per_address_max: Annotated[Whole, Field(ge=1, le=limits.CONNECTIONS_MAX)] = Field(
        default=512, description="Connections of one address; raise it where many clients come through one proxy."
    )
    header_deadline_seconds: Seconds = Field(default=10.0, description="Time a client has to send a request's headers.")
    body_deadline_seconds: Seconds = Field(default=60.0, description="Time a client has to send a request's body.")
    idle_deadline_seconds: Seconds = Field(default=75.0, description="Time a kept-alive connection may be idle.")
    write_deadline_seconds: Seconds = Field(
        default=60.0, description="Time a client has to take a piece of the answer."
    )

    @field_validator("trusted_gateways")
    @classmethod
    def _gateways_are_networks(cls, gateways: tuple[str, ...]) -> tuple[str, ...]:
        for gateway in gateways:
            try:
                ipaddress.ip_network(gateway)
            except ValueError as error:
                raise ValueError(f"holds what is no address or network: {error}") from None
        return gateways

    @field_validator("cors_origins")
    @classmethod
    def _origins_can_match(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            require_origin(origin)
        return origins

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts_can_match(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            require_host(host)
        return hosts

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> ServerSettings:
        files = {"tls_certificate_file": self.tls_certificate_file, "tls_key_file": self.tls_key_file}
        said = [name for name, file in files.items() if file is not None]
        if len(said) == 1:
            (missing,) = files.keys() - said
            option = f"--{missing.replace('_', '-')}"
            raise SettingError(said[0], f"needs {missing} ({option}) too; edgellm tls init makes both")
        return self


class PairingSettings(Section):
    """How clients without a key get one, with a code of `edgellm pair-code`. Needs API keys and a private authority."""

    enabled: Flag = Field(default=True, description="Whether a pairing code can be opened.")
    folder: Path | None = Field(
        default=None,
        description="Where the open code and the keys of paired clients are kept. Unset: `pairing` in `cache_dir`.",
    )
