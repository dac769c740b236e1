"""The draft service: settings, requests, and the thread that owns the model."""
