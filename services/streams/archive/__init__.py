"""The archive: ended generations in the database, for as long as the operator wants them."""
