"""Where addresses that others choose may lead."""
