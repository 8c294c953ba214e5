"""What an emulated API server says of itself: discovery, version, health, OpenAPI, token issuer."""

from emulator.discovery.handler import Discovery, ServerInfo

__all__ = ["Discovery", "ServerInfo"]
