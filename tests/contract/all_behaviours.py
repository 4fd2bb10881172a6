"""Every behaviour that both modules must show."""

from __future__ import annotations

from tests.contract.behaviours import Behaviours
from tests.contract.channel_behaviours import CHANNELS
from tests.contract.guide_behaviours import GUIDES
from tests.contract.media_behaviours import MEDIA
from tests.contract.module_behaviours import MODULE
from tests.contract.value_behaviours import VALUES

BEHAVIOURS = Behaviours(VALUES | MODULE | CHANNELS | GUIDES | MEDIA)
