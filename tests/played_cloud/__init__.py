"""A played cloud: a server on this machine that answers like Lambda, DigitalOcean or RunPod, and rents lab machines.

It is no cloud. It knows the calls that tailrack makes, in the shapes that the clouds' OpenAPI files describe, and plays
their faults: no capacity, quotas, rate limits, errors, slow and failed boots, machines that are taken back.
"""
