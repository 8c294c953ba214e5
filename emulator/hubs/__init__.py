"""Model hubs that serve any folder as a repository, and misbehave when told to.

`huggingface` is the Hugging Face hub; `faults`, `wrong_answers` and `broken_bodies` make it go
wrong, `request_log` tells what it was asked, `proxy` is a forward proxy to put in front of it.
"""

from emulator.hubs.broken_bodies import BrokenChunks, Close, Flip, Hangup, Overrun, Reset, Stall
from emulator.hubs.content import Bytes, DiskFile, Virtual
from emulator.hubs.errors import HubError
from emulator.hubs.faults import Faults, Rule
from emulator.hubs.huggingface import HuggingFaceHub
from emulator.hubs.huggingface_api import Options
from emulator.hubs.proxy import Proxy
from emulator.hubs.repository import LfsRule, Repository
from emulator.hubs.request_log import Entry, RequestLog
from emulator.hubs.wrong_answers import (
    EXPIRED_URL,
    Delay,
    Gzip,
    HtmlPage,
    IgnoreRange,
    NextLink,
    Redirect,
    Resize,
    Rewrite,
    Status,
    Unmeasured,
    WrongRange,
    mask_digests,
)

__all__ = [
    "EXPIRED_URL",
    "BrokenChunks",
    "Bytes",
    "Close",
    "Delay",
    "DiskFile",
    "Entry",
    "Faults",
    "Flip",
    "Gzip",
    "Hangup",
    "HtmlPage",
    "HubError",
    "HuggingFaceHub",
    "IgnoreRange",
    "LfsRule",
    "NextLink",
    "Options",
    "Overrun",
    "Proxy",
    "Redirect",
    "Repository",
    "RequestLog",
    "Reset",
    "Resize",
    "Rewrite",
    "Rule",
    "Stall",
    "Status",
    "Unmeasured",
    "Virtual",
    "WrongRange",
    "mask_digests",
]
