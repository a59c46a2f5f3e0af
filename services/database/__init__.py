"""One database for what must be kept: connections, transactions, the schema. Tables are their owners'."""
