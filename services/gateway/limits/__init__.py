"""What a key may use: requests and tokens per minute, generations at once; the same on all gateways."""
