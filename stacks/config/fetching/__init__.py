"""Where builds fetch from, and with which login."""
