"""`milena scenario`: what the shipped scenarios show, and playing them."""
