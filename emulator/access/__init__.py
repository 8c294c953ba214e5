"""Who is asking, and may they: authentication, tokens, reviews and RBAC of the emulated API server.

`Security` is the room's face. It is built before the API (which takes its authorizer) and bound to
it after:

    security = Security(clock, SecurityOptions(kubernetes="1.30"))
    api = Api(clock, Steps(authorizer=security.authorizer, ...))
    security.install(api)
"""

from emulator.access.security import Security, SecurityOptions

__all__ = ["Security", "SecurityOptions"]
