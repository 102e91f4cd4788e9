"""The base of kinds of site whose machines the stack rents: keys, checks, first host key, login, price, deletion."""
