"""Submit rows from Python, see their answers as they come, and say what it cost.

With a Redis and a worker running: `python ops/examples/api.py`
"""

import asyncio

from producer import Client

QUESTIONS = {
    "sky": "Why is the sky blue?",
    "sea": "Why is the sea salty?",
    "sun": "Why is the sun hot?",
}


async def main() -> None:
    """Ask the questions."""
    rows = [
        {"custom_id": name, "messages": [{"role": "user", "content": question}]} for name, question in QUESTIONS.items()
    ]
    async with Client() as client:
        job = await client.submit(rows, name="questions", defaults={"max_tokens": 40, "temperature": 0})
        async for result in job.results():  # as rows end
            print(result.custom_id, "->", result.text if result.error is None else result.error.message)
        status = await job.status()
        print(f"job {job.id} is {status.state}: {status.done} rows, {status.completion_tokens} tokens")


asyncio.run(main())
