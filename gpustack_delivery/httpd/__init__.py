"""A small, strict, threaded HTTP/1.1 server, plain or TLS, and the certificates for it."""

from gpustack_delivery.httpd.messages import (
    Body,
    FileSlice,
    Handler,
    Headers,
    Limits,
    Request,
    Response,
    Takeover,
)
from gpustack_delivery.httpd.server import Server, everywhere

__all__ = [
    "Body",
    "FileSlice",
    "Handler",
    "Headers",
    "Limits",
    "Request",
    "Response",
    "Server",
    "Takeover",
    "everywhere",
]
