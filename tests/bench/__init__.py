"""How fast the library is, beside what it lives in and what it competes with: `make bench`."""
