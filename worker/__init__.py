"""The heavy side of minedraft-worker: claims shards of rows and answers them with an engine."""
