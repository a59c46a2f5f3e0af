"""The rows of the table of flags, by what they are about. `services.cli.flags` joins them."""
