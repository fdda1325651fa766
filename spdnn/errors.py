"""The errors of spdnn: each is one clear sentence for a person, and none is ever shown as a traceback."""


class SpdnnError(Exception):
    """Something the user can mend; the message says the value, what is allowed, and where."""


class InputError(SpdnnError):
    """A file, argument or configuration that is not what it must be."""


class Unavailable(SpdnnError):
    """A tool, device, library or file that is needed here and is absent."""


class Unsuitable(SpdnnError):
    """An engine that cannot run this network or these inputs: a normal answer, not a fault."""
