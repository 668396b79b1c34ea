"""The dashboard: a store as pages, an interface for programs, and a folder of files that needs no server."""
