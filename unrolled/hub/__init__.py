"""Models on the Hugging Face hub: addresses, downloads, uploads, and the model card."""

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
