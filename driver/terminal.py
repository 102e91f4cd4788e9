"""What a terminal is shown of texts that machines have said: nothing that moves its cursor or changes its colours."""


def one_line(text: str) -> str:
    """The text with a blank for each character that is not printed, line breaks among them."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def lines(text: str) -> str:
    """The text, its lines kept, with a blank for each other character that is not printed."""
    return "\n".join(map(one_line, text.split("\n")))
