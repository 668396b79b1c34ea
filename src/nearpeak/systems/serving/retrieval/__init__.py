"""Retrieval of nearest vectors with a ranker behind it: recall, batch times, tandem queues, cheapest services."""
