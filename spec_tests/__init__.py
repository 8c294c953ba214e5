"""The executable specification: every rule a test, every test on the wire."""
