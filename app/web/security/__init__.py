"""Who may connect, what a response allows, and no connection to other machines."""
