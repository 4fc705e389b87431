"""Two hundred clients of every kind at once, most of them well-behaved: `make soak`."""
