"""Admission beyond the kinds' own rules: webhooks, policies, and what node identities may write.

`webhooks.Webhooks`, `policies.Policies` and `restriction.NodeRestriction` are
`contracts.Admission` steps; `chain.Chain` runs several.
"""

from emulator.admission.chain import Chain
from emulator.admission.policies import Policies
from emulator.admission.restriction import NodeRestriction
from emulator.admission.webhooks import Webhooks

__all__ = ["Chain", "NodeRestriction", "Policies", "Webhooks"]
