"""``weft mcp``: the tools through which agents use Weft (docs/agents.md)."""
