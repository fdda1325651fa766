"""Other libraries behind the contract of the engines, so that they are run, judged and recorded like our own.

`library` says what one must be able to do; each has a file of its own, with the layout that was fastest for it.
"""
