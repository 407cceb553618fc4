"""The memory side: clients with virtual requests, translation, the AXI4 port."""
