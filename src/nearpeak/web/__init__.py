"""The dashboard: a store as web pages, an HTTP API, and a static site that needs no server."""
