"""Reviews: who is this token, who am I, and may they?

Each is a create that stores nothing. A well-formed question is answered 201, also when the answer
is no.
"""

from __future__ import annotations

from emulator.access.answers import Stamp, cleaned, timestamp, user_info
from emulator.access.authentication import Credentials
from emulator.access.rbac import Rbac
from emulator.access.tokens import TokenFault
from emulator.contracts import (
    Access,
    Authorizer,
    Caller,
    Decision,
    Json,
    Outcome,
    Target,
    Virtual,
    WriteOptions,
)
from emulator.errors import Cause, bad_request, invalid, invalid_value

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"


class Reviews:
    """The virtual resources of authentication.k8s.io and authorization.k8s.io."""

    def __init__(
        self, credentials: Credentials, authorizer: Authorizer, rbac: Rbac, stamp: Stamp
    ) -> None:
        """`rbac` lists a caller's rules; `authorizer` decides, and may know more."""
        self._credentials, self._authorizer = credentials, authorizer
        self._rbac, self._stamp = rbac, stamp

    def virtuals(self) -> dict[tuple[str, str], Virtual]:
        """Return the answering function of each resource, by (group, plural)."""
        return {
            (AUTHENTICATION, "tokenreviews"): self.token,
            (AUTHENTICATION, "selfsubjectreviews"): self.self_subject,
            (AUTHORIZATION, "subjectaccessreviews"): self.subject_access,
            (AUTHORIZATION, "localsubjectaccessreviews"): self.subject_access,
            (AUTHORIZATION, "selfsubjectaccessreviews"): self.self_subject_access,
            (AUTHORIZATION, "selfsubjectrulesreviews"): self.self_subject_rules,
        }

    def token(self, caller: Caller, target: Target, body: Json, options: WriteOptions) -> Outcome:
        """TokenReview: whose token is it, and for which of the audiences?"""
        review = self._decoded(caller, target, body, options)
        spec = review["spec"]
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        try:
            accepted = self._credentials.judge(spec["token"], spec.get("audiences") or ())
        except TokenFault as fault:
            error = "invalid bearer token"
            if fault.reason:
                error = f"[{error}, {fault.reason}]"
            review["status"] = {"user": {}, "error": error}
        else:
            review["status"] = {
                "authenticated": True,
                "user": user_info(accepted.caller),
                "audiences": list(accepted.audiences),
            }
        return Outcome(review, 201)

    def self_subject(
        self, caller: Caller, target: Target, body: Json, options: WriteOptions
    ) -> Outcome:
        """SelfSubjectReview: who does the server think I am?"""
        return Outcome(
            {
                "kind": "SelfSubjectReview",
                "apiVersion": target.resource.api_version,
                "metadata": {"creationTimestamp": timestamp(self._stamp.now)},
                "status": {"userInfo": user_info(caller)},
            },
            201,
        )

    def subject_access(
        self, caller: Caller, target: Target, body: Json, options: WriteOptions
    ) -> Outcome:
        """SubjectAccessReview and its local form: may that user do this?"""
        review = self._decoded(caller, target, body, options)
        spec = review["spec"]
        causes = _attribute_causes(spec)
        if not spec.get("user") and not spec.get("groups"):
            detail = "at least one of user or group must be specified"
            causes.append(invalid_value("spec.user", "", detail))
        if target.resource.namespaced:
            review["metadata"] = {"namespace": target.namespace, **review["metadata"]}
            asked = (spec.get("resourceAttributes") or {}).get("namespace", "")
            if asked != target.namespace:
                field = "spec.resourceAttributes.namespace"
                causes = [invalid_value(field, asked, "must match metadata.namespace")]
        if causes:
            raise invalid(AUTHORIZATION, "", "", causes)
        extra = {key.lower(): tuple(values) for key, values in (spec.get("extra") or {}).items()}
        groups = tuple(spec.get("groups") or ())
        user = Caller(spec.get("user", ""), groups, spec.get("uid", ""), extra)
        review["status"] = self._status(_access(user, spec))
        return Outcome(review, 201)

    def self_subject_access(
        self, caller: Caller, target: Target, body: Json, options: WriteOptions
    ) -> Outcome:
        """SelfSubjectAccessReview: may I do this?"""
        review = self._decoded(caller, target, body, options)
        causes = _attribute_causes(review["spec"])
        if causes:
            raise invalid(AUTHORIZATION, "", "", causes)
        review["status"] = self._status(_access(caller, review["spec"]))
        return Outcome(review, 201)

    def self_subject_rules(
        self, caller: Caller, target: Target, body: Json, options: WriteOptions
    ) -> Outcome:
        """SelfSubjectRulesReview: what may I do in a namespace?"""
        namespace = ((body.get("spec") or {}).get("namespace")) or ""
        if not namespace:
            raise bad_request("no namespace on request")
        resources: list[Json] = []
        paths: list[Json] = []
        for granted in self._rbac.granted(caller, namespace):
            rule = {key: values for key, values in granted.rule.items() if values}
            if rule.get("nonResourceURLs"):
                paths.append(rule)
            elif rule:
                resources.append(rule)
        status = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
        return Outcome(
            {
                "kind": "SelfSubjectRulesReview",
                "apiVersion": target.resource.api_version,
                "metadata": {},
                "spec": {},
                "status": status,
            },
            201,
        )

    def _decoded(self, caller: Caller, target: Target, body: Json, options: WriteOptions) -> Json:
        review: Json = {
            "kind": target.resource.kind,
            "apiVersion": target.resource.api_version,
            "metadata": {},
            "spec": cleaned(body.get("spec") or {}),
        }
        self._stamp.track(review, target.resource, caller, options)
        return review

    def _status(self, access: Access) -> Json:
        decision: Decision = self._authorizer.decide(access)
        status: Json = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return status


def _attribute_causes(spec: Json) -> list[Cause]:
    """Return what is wrong with a question: it asks about a resource or about a path, not both."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource and path:
        detail = "cannot be specified in combination with resourceAttributes"
        return [invalid_value("spec.nonResourceAttributes", path, detail)]
    if not resource and not path:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid_value("spec.resourceAttributes", None, detail)]
    return []


def _access(user: Caller, spec: Json) -> Access:
    path = spec.get("nonResourceAttributes")
    if path:
        return Access(user, path.get("verb", ""), path=path.get("path", ""))
    asked = spec["resourceAttributes"]
    return Access(
        user,
        asked.get("verb", ""),
        asked.get("group", ""),
        asked.get("version", ""),
        asked.get("resource", ""),
        asked.get("subresource", ""),
        asked.get("namespace", ""),
        asked.get("name", ""),
    )
