"""nearpeak: how near to the hardware's peak is this work, and what is worth doing next?"""
