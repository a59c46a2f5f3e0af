"""`python -m services.cli <command>`: how the launcher starts its children."""

from services.cli.main import main

main()
