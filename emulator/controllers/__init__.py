"""The controllers that a bare API server needs to keep its own promises: garbage, namespaces,
definitions.
"""
