"""What follows from analyses and measurements; it takes values and asks no device, file or database."""
