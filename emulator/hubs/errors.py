"""What a hub says when it cannot serve what it was given."""


class HubError(Exception):
    """A repository, folder or address that cannot be served; the message is one line."""
