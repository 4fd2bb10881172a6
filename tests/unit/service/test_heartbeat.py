"""The watchdog is pinged while a restart would not help; STATUS names what is not as it should be."""

from __future__ import annotations

import asyncio

from tests.unit.serving.scripted_lane import ScriptedLane, spec_of, until

from edgellm.service.heartbeat import Heartbeat, serving_text
from edgellm.service.notify import Supervisor
from edgellm.serving.engine_client import EngineClient

URL = "http://127.0.0.1:8000"


class WatchedSupervisor(Supervisor):
    """One with a watchdog that wants pings all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.ping_interval_seconds = 0.001
        self.pings = 0
        self.statuses: list[str] = []

    def _send(self, state: str, *, wait_seconds: float) -> None:
        self.pings += state == "WATCHDOG=1"
        if state.startswith("STATUS="):
            self.statuses.append(state.removeprefix("STATUS="))


async def pinged(supervisor: WatchedSupervisor) -> None:
    before = supervisor.pings
    await until(lambda: supervisor.pings > before)


def test_pings_stop_only_when_every_required_model_is_gone_for_good() -> None:
    async def story() -> None:
        lane, other = ScriptedLane(), ScriptedLane()
        client = EngineClient([spec_of(lane), spec_of(other, name="spare"), spec_of(name="odd", required=False)])
        supervisor = WatchedSupervisor()
        heartbeat = Heartbeat(client, supervisor, URL)
        beating = asyncio.create_task(heartbeat.beat())
        await pinged(supervisor)  # while models load
        client.start()
        await client.opened()
        heartbeat.watches_models = True
        tiny, spare = client.model("tiny"), client.model("spare")
        await pinged(supervisor)
        tiny.lane_lost(lane, is_coming_back=True)
        await until(lambda: any("tiny is loading" in text for text in supervisor.statuses))
        await pinged(supervisor)
        tiny.lane_given_up()
        await until(lambda: any("tiny is unavailable" in text for text in supervisor.statuses))
        await pinged(supervisor)  # another required model answers
        spare.lane_lost(other)
        await until(lambda: any("spare is unavailable" in text for text in supervisor.statuses))
        before = supervisor.pings
        await asyncio.sleep(0.05)
        assert supervisor.pings <= before + 1
        heartbeat.watches_models = False  # it is stopping: nothing is to be restarted
        await pinged(supervisor)
        beating.cancel()
        await client.close()

    asyncio.run(story())


def test_a_status_of_models_that_are_well_is_short() -> None:
    async def story() -> None:
        client = EngineClient([spec_of(ScriptedLane())])
        assert serving_text(client.models, URL) == f"serving on {URL}; tiny is loading"
        client.start()
        await client.opened()
        assert serving_text(client.models, URL) == f"serving on {URL}"
        await client.close()

    asyncio.run(story())
