"""One module per revision, named by its number."""
