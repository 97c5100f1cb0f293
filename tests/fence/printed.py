"""Reading what `lockctl fence sql` prints."""

from __future__ import annotations

NAME = "o'brien's \\stock\\ \"%s%% :x"  # of a resource that is hard to quote
STOCK = "create table stock (id integer primary key, amount bigint); insert into stock values (1, 10);"


def examples(text: str) -> list[str]:
    """The statements that are to be copied into programs."""
    statements, under_way = [], ""
    for line in text.splitlines():
        if not line.startswith("--     "):
            assert not under_way
            continue
        under_way += line[7:] + "\n"
        ends = under_way.rstrip().endswith("END;") if "BEGIN\n" in under_way else under_way.rstrip().endswith(";")
        if ends:
            statements.append(under_way)
            under_way = ""
    assert not under_way
    return statements


def starting(text: str, beginning: str) -> list[str]:
    """The examples that start with certain words."""
    found = [each for each in examples(text) if each.startswith(beginning)]
    assert found
    return found
