"""Loads the specification's plugin for every test of the repository.

One of the three files that know both sides: here the implementation is handed to a suite that never
imports it.
"""

from __future__ import annotations

pytest_plugins = ["pytester", "spec_tests.plugin"]
