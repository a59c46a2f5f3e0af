"""API keys in the database, and their mirror on the bus, which gateways watch."""
