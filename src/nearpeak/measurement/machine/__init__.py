"""The machine under measurement: devices, locks, roofs, software environment."""
