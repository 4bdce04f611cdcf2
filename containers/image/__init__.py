"""Images: layers, the packages in them, their binaries and GPU code."""
