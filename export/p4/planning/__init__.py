"""What a model takes of a switch: encodings of trees as tables, their cost by a profile, the cheapest that fits."""
