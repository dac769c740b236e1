"""What requests and responses are made of: fields, bodies, refusals and streams."""
