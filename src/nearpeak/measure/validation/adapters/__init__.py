"""Public packages as implementations under test."""
