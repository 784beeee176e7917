from planted.helpers import first_backend, second_backend

TABLE = {"first": first_backend, "second": second_backend}


def choose() -> list[str]:
    return [name for name, backend in TABLE.items() if backend()]


CHOSEN = choose()
