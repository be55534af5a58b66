"""`milena tier`: what lies in a remote tier, told and used without a cluster."""
