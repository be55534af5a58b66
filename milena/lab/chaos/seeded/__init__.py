"""The workload, faults and end of `milena sim --seed`."""
