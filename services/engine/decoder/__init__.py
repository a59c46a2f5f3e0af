"""The decoder process: owner of the llama context. One process, one Python thread, no asyncio."""
