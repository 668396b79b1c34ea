"""Reports of a profiled trace: its headline, where its steps went, and two traces side by side."""
