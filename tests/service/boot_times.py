"""Where the seconds from the start of a device to its first answer went, by systemd's own clock."""

from __future__ import annotations

from dataclasses import dataclass

from tests.service.appliance import PREWARM, UNIT, Appliance

SECOND_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class BootTimes:
    """``systemd`` from its first moment to the prewarming, ``start`` from the server's to its socket, ``load`` from
    there to the first token, which is what makes it ready."""

    systemd_seconds: float
    prewarm_seconds: float
    start_seconds: float
    load_seconds: float

    def __str__(self) -> str:
        return (
            f"systemd {self.systemd_seconds:.1f} s, prewarm {self.prewarm_seconds:.1f} s, "
            f"server to its socket {self.start_seconds:.1f} s, load and warm-up {self.load_seconds:.1f} s"
        )


def boot_times(appliance: Appliance) -> BootTimes:
    """Of the present boot; the server is ready."""
    began = appliance.device.run("systemctl", "show", "--property=UserspaceTimestampMonotonic", "--value").output
    prewarm = _moments(appliance, PREWARM, "ExecMainStart", "ExecMainExit")
    server = _moments(appliance, UNIT, "InactiveExit", "ActiveEnter")
    listening_seconds = _said_at(appliance, "listening on")
    return BootTimes(
        systemd_seconds=prewarm[0] - int(began) / SECOND_MICROSECONDS,
        prewarm_seconds=prewarm[1] - prewarm[0],
        start_seconds=listening_seconds - server[0],
        load_seconds=server[1] - listening_seconds,
    )


def _moments(appliance: Appliance, unit: str, *names: str) -> list[float]:
    keys = [f"{name}TimestampMonotonic" for name in names]
    shown = appliance.device.unit(unit, *keys)
    return [int(shown[key]) / SECOND_MICROSECONDS for key in keys]


def _said_at(appliance: Appliance, text: str) -> float:
    """When the server said it last, in seconds of the monotonic clock."""
    journal = appliance.device.journal(UNIT, "--output=short-monotonic", "--boot")
    (line,) = [line for line in journal.splitlines() if text in line][-1:]
    return float(line[1:].split("]")[0])
