"""What a process has in memory of an ELF file, and why a loader or the kernel refuses one."""
