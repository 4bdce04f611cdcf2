"""The machine code in an image: ELF files, what the loader makes of them, GPU code, and who owns them."""
