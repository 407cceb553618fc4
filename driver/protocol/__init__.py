"""Messages between the server of a machine and its clients."""
