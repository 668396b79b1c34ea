"""Services of language models and inference servers: questions, runs, plans, choices and calibration."""
