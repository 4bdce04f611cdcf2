"""Known vulnerabilities of an image: the scanner, the stack's verdict, and OpenVEX."""
