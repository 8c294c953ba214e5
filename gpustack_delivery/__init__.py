"""Model weights delivered once per node: the node plugin and the worker."""
