"""The worker: controllers that keep artifacts and nodes true, and webhooks that guard them."""
