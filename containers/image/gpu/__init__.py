"""What an image asks of GPUs: their machine code in its libraries, and the driver."""
