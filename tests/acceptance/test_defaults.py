"""What `producer submit` asks for on behalf of all rows, with the fake engine, whose answers depend on all of a row."""

import json

from shell import Shell, chat_line, lines

TEMPLATE = "{{ messages[0].content }}\n"


def test_rows_are_answered_as_if_they_said_their_jobs_defaults(shell: Shell) -> None:
    template = shell.folder / "template.jinja"
    template.write_text(TEMPLATE)
    asked = ("--defaults", '{"max_tokens": 5}', "--chat-template", str(template), "--chat-template-kwargs", '{"a": 1}')
    short = shell.submit("-", *asked, text=lines(20))
    spelled = {"max_tokens": 5, "chat_template": TEMPLATE, "chat_template_kwargs": {"a": 1}}
    long = shell.submit(text="".join(json.dumps(json.loads(chat_line(i)) | spelled) + "\n" for i in range(20)))
    shell.fake()
    texts = []
    for job in (short, long):
        shell.producer("watch", job["job_id"])
        texts.append([line["response"]["body"]["choices"] for line in shell.results(job["job_id"])])
    assert texts[0] == texts[1]
    again = shell.submit("-", *asked, text=lines(20))
    assert (again["job_id"], again["resumed"]) == (short["job_id"], True)
    assert shell.submit(text=lines(20))["job_id"] not in (short["job_id"], long["job_id"])


def test_defaults_that_cannot_be_are_refused_in_one_line(shell: Shell) -> None:
    for option, value in [("--defaults", '{"model": "m"}'), ("--defaults", "{"), ("--chat-template", "no/such/file")]:
        ended = shell.run("producer", "submit", "-", option, value, text=lines(1))
        assert ended.returncode == 2
        assert ended.stderr.count("\n") == 1
        assert option in ended.stderr or value in ended.stderr
    assert json.loads(shell.producer("status", "--json")) == []
