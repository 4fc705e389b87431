"""The servers that are compared, an app each. They do the same work in their own idiom."""
