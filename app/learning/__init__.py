"""Personal and base stores, and the training of adapters beside the server."""
