"""Key names are written once, in schema.lua."""

import re
from importlib import resources

from producer.record import keys, leases

LUA = resources.files("producer.record") / "lua"


def test_keys_are_filled_in() -> None:
    assert keys.key("rows", "abc", 3) == "minedraft:job:abc:rows:3"
    assert keys.key("jobs") == "minedraft:jobs"


def test_every_key_that_a_script_uses_is_in_the_schema() -> None:
    for script in LUA.iterdir():
        for name in re.findall(r"\bkey\.(\w+)", script.read_text()):
            assert keys.key(name, *["x"] * keys._names()[name].count("%s")), f"{name} in {script.name}"


def test_what_a_worker_must_know_of_the_scripts_is_what_they_say() -> None:
    assert f"local SUSPECT = {leases.SUSPECT}\n" in keys.lua("schema")
    (split,) = re.findall(r"local SPLIT = (\d+)\n", keys.lua("schema"))
    assert leases.SUSPECT < int(split) < leases.CONDEMNED


def test_no_script_spells_a_key_itself() -> None:
    for script in LUA.iterdir():
        if script.name != "schema.lua":
            assert "minedraft:" not in script.read_text(), script.name
