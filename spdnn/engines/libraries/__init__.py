"""Peers: other libraries behind the contract of the engines, so that they are run, judged and recorded like our own.

`base` holds what they share; each library has a file of its own, which says the layout that was fastest for it.
"""
