"""The only importer of nats-py: connection, fenced append, log reader, tasks, buckets, RPC.

Everything here belongs to one asyncio event loop and is called from its thread.
"""
