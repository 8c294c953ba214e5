"""What is wrong with a webhook configuration beyond its form: names, addresses, expressions."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from emulator.admission.conditions import fault
from emulator.admission.matching import GROUP
from emulator.contracts import Attributes, Json
from emulator.errors import ApiError, Cause, invalid, invalid_value

_PLURALS = frozenset({"mutatingwebhookconfigurations", "validatingwebhookconfigurations"})
_DESIRED = "desired format: https://host[/path]"


def refusal(attributes: Attributes) -> ApiError | None:
    """Return the 422 of a configuration that cannot work, None for a sound one or another kind."""
    resource = attributes.target.resource
    if resource.group != GROUP or resource.plural not in _PLURALS or attributes.object is None:
        return None
    causes = [
        cause
        for place, webhook in enumerate(attributes.object.get("webhooks") or ())
        for cause in _faults(f"webhooks[{place}]", webhook)
    ]
    if not causes:
        return None
    return invalid(GROUP, resource.kind, attributes.object["metadata"]["name"], causes)


def _faults(field: str, webhook: Json) -> Iterator[Cause]:
    name = webhook.get("name", "")
    if name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        yield invalid_value(f"{field}.name", name, detail)
    url = (webhook.get("clientConfig") or {}).get("url")
    if url is not None:
        yield from _url_faults(f"{field}.clientConfig.url", url)
    for place, condition in enumerate(webhook.get("matchConditions") or ()):
        wrong = fault(condition.get("expression", ""))
        if wrong:
            where = f"{field}.matchConditions[{place}].expression"
            yield invalid_value(where, condition["expression"], f"compilation failed: {wrong}")


def _url_faults(field: str, url: str) -> Iterator[Cause]:
    parts = urlsplit(url)
    if parts.scheme != "https":
        detail = f"'https' is the only allowed URL scheme; {_DESIRED}"
        yield invalid_value(field, parts.scheme, detail)
    if not parts.hostname:
        yield invalid_value(field, "", f"host must be specified; {_DESIRED}")
    for value, what in (
        (parts.username, "user information is not permitted in the URL"),
        (parts.query, "query parameters are not permitted in the URL"),
        (parts.fragment, "fragments are not permitted in the URL"),
    ):
        if value:
            yield invalid_value(field, value, what)
