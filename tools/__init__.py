"""Tools of the checkout: setup, lock, import contracts. Nothing here is installed or shipped."""
