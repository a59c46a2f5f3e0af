"""HTTP manners that gateway and streams share: SSE, error bodies, authentication. No business here."""
