"""`make bench`: what the platform costs and how fast it is, measured from outside."""
