"""The one exception a person sees."""


class LabError(Exception):
    """Something the lab needs is missing or broken; the message is one line that ends with the next step."""
