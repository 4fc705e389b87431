"""The one place that says which version this is. The build reads it, so it imports nothing."""

__version__ = "0.1.0"
