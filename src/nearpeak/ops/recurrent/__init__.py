"""Recurrent layers and state-space scans."""
