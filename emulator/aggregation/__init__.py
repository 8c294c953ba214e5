"""APIs of other servers behind this one: APIServices, their conditions, and requests passed on.

`Aggregation` is the whole; a `ControlPlane` puts one before its own resources.
"""

from emulator.aggregation.aggregation import Aggregation

__all__ = ["Aggregation"]
