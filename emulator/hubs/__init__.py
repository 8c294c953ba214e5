"""Model hubs that serve any folder as a repository, and misbehave when told to.

`huggingface` and `modelscope` are the hubs; `faults`, `wrong_answers` and `broken_bodies` make
them go wrong, `request_log` tells what they were asked, `proxy` is a forward proxy to put between.
"""

from emulator.hubs.broken_bodies import BrokenChunks, Close, Flip, Hangup, Overrun, Reset, Stall
from emulator.hubs.content import Bytes, DiskFile, Virtual
from emulator.hubs.errors import HubError
from emulator.hubs.faults import Faults, Rule
from emulator.hubs.huggingface import HuggingFaceHub
from emulator.hubs.huggingface_api import Options
from emulator.hubs.modelscope import ModelScopeHub
from emulator.hubs.modelscope_api import Habits
from emulator.hubs.proxy import Proxy
from emulator.hubs.repository import LfsRule, Repository
from emulator.hubs.request_log import Entry, RequestLog
from emulator.hubs.wrong_answers import (
    EXPIRED_URL,
    After,
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
    "After",
    "BrokenChunks",
    "Bytes",
    "Close",
    "Delay",
    "DiskFile",
    "Entry",
    "Faults",
    "Flip",
    "Gzip",
    "Habits",
    "Hangup",
    "HtmlPage",
    "HubError",
    "HuggingFaceHub",
    "IgnoreRange",
    "LfsRule",
    "ModelScopeHub",
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
