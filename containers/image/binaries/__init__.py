"""The machine code in an image: ELF files, and what the loader makes of them."""
