"""Proof of the specification: broken versions of ours, and the rule that must catch each.

A mutant patches one seam of the implementation before the in-process target starts it. Its rule
passes for us as we are, and must be `failed` for the mutant: a mutant that survives means that the
tests of that rule cannot fail. `make mutants` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from tests.mutants import artifacts, consuming, node, public_api, warming, worker


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken version: how it comes about, and the rule whose tests must notice."""

    breaks: Callable[[pytest.MonkeyPatch], None]
    rule: str

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return self.breaks.__name__.replace("_", "-")


_ALL: Final = (
    Mutant(node.skips_the_hash, "NS-DL-16"),
    Mutant(node.token_follows_redirects, "NS-DL-23"),
    Mutant(node.lists_the_branch, "NS-DL-03"),
    Mutant(node.never_syncs, "NS-DL-19"),
    Mutant(node.ignores_markers, "NS-DL-20"),
    Mutant(node.never_backs_off, "NS-DL-26"),
    Mutant(node.mounts_writable, "NS-MNT-05"),
    Mutant(node.stacks_mounts, "NS-REF-07"),
    Mutant(node.evicts_what_is_mounted, "NS-GC-03"),
    Mutant(node.evicts_what_is_pinned, "NS-GC-07"),
    Mutant(node.evicts_the_newest, "NS-GC-02"),
    Mutant(node.knows_no_grace, "NS-GC-06"),
    Mutant(node.trusts_the_old_status, "NS-RES-15"),
    Mutant(node.tells_usage_exactly, "NS-RES-06"),
    Mutant(node.counts_downloads_twice, "NS-MET-02"),
    Mutant(node.ignores_the_uid, "NS-AUT-05"),
    Mutant(node.ignores_revocations, "NS-AUT-07"),
    Mutant(node.believes_the_pods_attributes, "NS-AUT-09"),
    Mutant(node.takes_content_for_permission, "NS-AUT-10"),
    Mutant(node.makes_the_target_first, "NS-AUT-11"),
    Mutant(worker.sorts_paths_without_case, "AR-DIG-01"),
    Mutant(worker.lets_anybody_write_a_status, "NS-OWN-13"),
    Mutant(worker.looks_up_no_pod, "NS-OWN-15"),
    Mutant(worker.lets_anybody_resolve, "NS-OWN-18"),
    Mutant(artifacts.believes_the_hub_alone, "AR-MS-01"),
    Mutant(artifacts.takes_a_cut_listing_for_whole, "AR-MS-02"),
    Mutant(artifacts.knows_no_codes, "AR-MS-03"),
    Mutant(artifacts.ignores_new_secrets, "AR-REV-01"),
    Mutant(artifacts.revokes_at_the_first_refusal, "AR-REV-02"),
    Mutant(artifacts.revokes_in_an_outage, "AR-REV-03"),
    Mutant(artifacts.expects_nothing, "AR-ANC-01"),
    Mutant(artifacts.lets_specs_change, "AR-RES-02"),
    Mutant(artifacts.counts_every_percent, "AR-RES-07"),
    Mutant(artifacts.lets_go_what_is_named, "AR-RES-08"),
    Mutant(consuming.names_every_holder, "SC-PRF-01"),
    Mutant(consuming.prefers_the_unfit, "SC-PRF-02"),
    Mutant(consuming.prefers_nothing, "NS-REQ-04"),
    Mutant(consuming.mounts_claims_by_the_plugin, "NS-REQ-02"),
    Mutant(consuming.keeps_the_secret, "NS-MNT-02"),
    Mutant(consuming.mounts_nothing, "NS-MNT-01"),
    Mutant(public_api.takes_progress_for_the_artifact, "VW-AUT-01"),
    Mutant(public_api.lets_node_stores_be_written, "NS-OWN-09"),
    Mutant(public_api.shows_the_stored_version, "VW-RES-01"),
    Mutant(public_api.forgets_its_tables, "VW-RES-02"),
    Mutant(public_api.hears_no_plugin, "NS-MET-09"),
    Mutant(public_api.accepts_every_setting, "OP-SET-01"),
    Mutant(public_api.needs_no_driver, "OP-SET-01"),
    Mutant(warming.knows_no_pool, "MP-RES-02"),
    Mutant(warming.lets_the_last_name_win, "MP-RES-03"),
    Mutant(warming.lets_grants_shrink, "MP-RES-06"),
    Mutant(warming.pins_for_ever, "MP-RES-09"),
    Mutant(warming.confuses_flavors, "MP-PLC-01"),
    Mutant(warming.derives_from_anybody, "MP-PLC-03"),
    Mutant(warming.admits_both_kinds, "MP-PLC-04"),
    Mutant(warming.admits_by_another_expansion, "MP-PLC-05"),
    Mutant(warming.makes_pods_without_end, "MP-POD-01"),
    Mutant(warming.forgets_the_secret, "MP-POD-02"),
    Mutant(warming.runs_as_root, "MP-POD-03"),
    Mutant(warming.reads_the_top_folder_only, "MP-POD-04"),
    Mutant(warming.inherits_labels, "MP-POD-06"),
    Mutant(warming.has_one_image, "MP-POD-07"),
    Mutant(warming.charges_one_holder, "MP-BUD-01"),
    Mutant(warming.takes_the_unmeasured_for_nothing, "MP-BUD-03"),
    Mutant(warming.admits_any_node, "MP-BUD-07"),
    Mutant(warming.admits_any_footprint, "MP-BUD-09"),
    Mutant(warming.shares_a_field_manager, "MP-PIN-02"),
    Mutant(warming.never_lapses, "MP-PIN-03"),
    Mutant(warming.wants_every_node, "MP-STA-02"),
    Mutant(warming.hides_failures, "MP-STA-03"),
    Mutant(warming.forgets_lapses, "MP-STA-04"),
    Mutant(warming.blames_every_shortfall_on_time, "MP-STA-05"),
)

MUTANTS: Final[Mapping[str, Mutant]] = {mutant.name: mutant for mutant in _ALL}
"""Every mutant by its name."""
