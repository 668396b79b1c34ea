"""Values of what ran: measurements, telemetry, energy, validation records."""
