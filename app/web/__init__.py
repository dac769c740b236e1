"""The server and the page: its address, its routes, its errors, and what opens it in a browser."""
