"""A Kubernetes and two model hubs, small enough to read, faithful enough for real clients."""
