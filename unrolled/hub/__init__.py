"""Models on the Hugging Face hub: addresses, downloads, uploads, and the model card.

Names load at first use: an address is known without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unrolled.lazy import lazy_names

if TYPE_CHECKING:
    from unrolled.hub.address import FILE, HUB, Address, is_address
    from unrolled.hub.card import CardFacts, CardOptions, Usage, make_card
    from unrolled.hub.download import fetch
    from unrolled.hub.upload import MESSAGE, check_repo, push

__all__ = [
    "FILE",
    "HUB",
    "MESSAGE",
    "Address",
    "CardFacts",
    "CardOptions",
    "Usage",
    "check_repo",
    "fetch",
    "is_address",
    "make_card",
    "push",
]

__getattr__ = lazy_names(
    __name__,
    {
        "unrolled.hub.address": "FILE HUB Address is_address",
        "unrolled.hub.card": "CardFacts CardOptions Usage make_card",
        "unrolled.hub.download": "fetch",
        "unrolled.hub.upload": "MESSAGE check_repo push",
    },
)
