"""The real world behind our ports: one module per third-party client, one for the host."""
