"""A service with an MCP endpoint, ready to be deployed."""
