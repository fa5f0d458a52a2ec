"""W6: one small program per participant. It builds an agent with a tool and with a capability of its own; no run."""
