"""What the command says of itself: help, completion of words, and what this machine has."""
