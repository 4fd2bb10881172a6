"""PrefixIndex: which lane's context cache is likely to know the beginning of a prompt.

The front end only guesses: it remembers, page by page, what prompts each lane was given lately. What a lane really
reuses is its own business, and reported as cached tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from edgellm.runtime.generation import GenerationRequest
from edgellm.serving.lane import Lane

PAGE_TOKENS = 32
PAGES_REMEMBERED_MAX = 8_192  # of one lane; about 1 MiB

Pages = Sequence[int]


def pages_of(token_ids: Sequence[int], cache_domain: str) -> Pages:
    """A hash for each whole page, which stands for the page and everything before it in that domain."""
    hashes = []
    running = hash(cache_domain)
    for first in range(0, len(token_ids) - PAGE_TOKENS + 1, PAGE_TOKENS):
        running = hash((running, *token_ids[first : first + PAGE_TOKENS]))
        hashes.append(running)
    return hashes


class PrefixIndex:
    """Of one model's lanes; a lane that goes is forgotten with what it knew."""

    def __init__(self, pages_max: int = PAGES_REMEMBERED_MAX) -> None:
        self._pages_max = pages_max
        self._pages: WeakKeyDictionary[Lane, OrderedDict[int, None]] = WeakKeyDictionary()

    def known_pages(self, lane: Lane, pages: Pages) -> int:
        """How many of the first ``pages`` the lane was given before."""
        seen = self._pages.get(lane)
        if seen is None:
            return 0
        known = 0
        for page in pages:
            if page not in seen:
                break
            known += 1
        return known

    def remember(self, lane: Lane, pages: Pages) -> None:
        seen = self._pages.setdefault(lane, OrderedDict())
        # The last page first: what is forgotten first must be an end, never a beginning that ends hang on.
        for page in reversed(pages):
            seen[page] = None
            seen.move_to_end(page)
        while len(seen) > self._pages_max:
            seen.popitem(last=False)


@dataclass(frozen=True, slots=True)
class PrefixAffinity:
    """The affinity of one prompt. A busier lane is chosen only where it would save at least half of the prompt."""

    index: PrefixIndex
    pages: Pages
    looks_up: bool

    @classmethod
    def of(cls, request: GenerationRequest, index: PrefixIndex) -> PrefixAffinity | None:
        """None for a prompt that is not tokenised here, or fills no page."""
        pages = pages_of(request.prompt_token_ids or (), request.cache_domain)
        return cls(index, pages, request.params.reuse_context) if pages else None

    def choose(self, loads: Mapping[Lane, float]) -> Lane:
        least_busy = min(loads, key=lambda lane: loads[lane])
        if not self.looks_up:
            return least_busy
        known = {lane: self.index.known_pages(lane, self.pages) for lane in loads}
        worth = {
            lane: pages if loads[lane] == loads[least_busy] or 2 * pages >= len(self.pages) else 0
            for lane, pages in known.items()
        }
        return max(loads, key=lambda lane: (worth[lane], -loads[lane]))

    def goes_to(self, lane: Lane) -> None:
        self.index.remember(lane, self.pages)
