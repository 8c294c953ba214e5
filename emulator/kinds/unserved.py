"""What a real server always has and this one has not: refused by name, with 501.

What a cluster may lack, such as an API that is still in beta, is not here: the usual 404 tells a
client the truth about it.
"""

from __future__ import annotations

SUBRESOURCES = frozenset(
    ("pods", subresource)
    for subresource in (
        "attach",
        "ephemeralcontainers",
        "exec",
        "log",
        "portforward",
        "proxy",
        "resize",
    )
) | {("services", "proxy"), ("nodes", "proxy")}
"""Plural and subresource, unless a connector serves it."""

RESOURCES = frozenset(
    (
        ("", "v1", "bindings"),
        ("", "v1", "componentstatuses"),
        ("", "v1", "limitranges"),
        ("", "v1", "podtemplates"),
        ("", "v1", "replicationcontrollers"),
        ("", "v1", "resourcequotas"),
        ("autoscaling", "v1", "horizontalpodautoscalers"),
        ("autoscaling", "v2", "horizontalpodautoscalers"),
        ("certificates.k8s.io", "v1", "certificatesigningrequests"),
        ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations"),
        ("networking.k8s.io", "v1", "ingressclasses"),
        ("networking.k8s.io", "v1", "ingresses"),
        ("storage.k8s.io", "v1", "csistoragecapacities"),
    )
)
"""Group, version and plural."""
