"""A travel desk: REST endpoints, an MCP endpoint and a payment page over one database.

`python -m demo_app` starts it and plays a booking against it. Everything MCP goes through the
public names of `fastapi_mcp_mrtr`; `mcp_tools.py` is the file to read first.
"""
