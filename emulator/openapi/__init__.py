"""OpenAPI documents of what an emulated API server serves, made from its resources and schemas.

`schemas` describes the objects, `operations` the paths, `documents` puts them together and keeps
what it made.
"""

from emulator.openapi.documents import Catalogue, Documents

__all__ = ["Catalogue", "Documents"]
