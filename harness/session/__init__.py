"""`bench run`: what was asked for, the engine chosen and started, one run after the other, the answer."""
